package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
	"ankusa.dev/e2e/internal/receiver"
)

// Rig is what benchmarks run on.
type Rig struct {
	// Self is this program, which is also the load, the receivers and the opponents.
	Self string
	// Bin holds the product, Dir takes stores and logs.
	Bin, Dir string
	// Repeat is how often each side is measured.
	Repeat int
	// Log takes progress.
	Log io.Writer

	made   int
	wanted []string           // names of the benchmarks that run
	steady map[string]samples // found by the searches so far, by side
}

func (g *Rig) wants(name string) bool { return slices.Contains(g.wanted, name) }

// conns is the number of connections of every load.
const conns = 64

// bodyBytes is the size of every body.
const bodyBytes = 512

func (g *Rig) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.Log, format+"\n", args...)
}

// place makes a fresh directory.
func (g *Rig) place(name string) (string, error) {
	g.made++
	dir := filepath.Join(g.Dir, fmt.Sprintf("%03d-%s", g.made, name))
	return dir, os.MkdirAll(dir, 0o700)
}

// limits describe the machine, and what the caller adds.
func (g *Rig) limits(more map[string]any) map[string]any {
	all := map[string]any{
		"cpus": runtime.NumCPU(), "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH,
		"connections": conns, "body_bytes": bodyBytes, "repeat": g.Repeat, "store": "local",
		"shared_machine": "load, receiver and both sides on the same cores",
	}
	for name, value := range more {
		all[name] = value
	}
	return all
}

// measure gives one figure of one side.
type measure func(context.Context) (float64, error)

// interleave measures both sides in turns, so that a drift of the machine meets both.
func (g *Rig) interleave(ctx context.Context, a, b measure) (samples, samples, error) {
	all, err := g.turns(ctx, a, b)
	if err != nil {
		return nil, nil, err
	}
	return all[0], all[1], nil
}

// turns measures some sides one after the other, again and again.
func (g *Rig) turns(ctx context.Context, sides ...measure) ([]samples, error) {
	all := make([]samples, len(sides))
	for i := range g.Repeat {
		figures := make([]float64, len(sides))
		for s, side := range sides {
			var err error
			if figures[s], err = side(ctx); err != nil {
				return nil, fmt.Errorf("repetition %d: %w", i+1, err)
			}
			all[s] = append(all[s], figures[s])
		}
		g.say("  %d of %d: %.5g", i+1, g.Repeat, figures)
	}
	return all, nil
}

// run starts a child, waits for its end, and decodes what it printed.
func run[O any](ctx context.Context, g *Rig, kind string, spec any) (O, error) {
	var out O
	text, err := json.Marshal(spec)
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, g.Self, "child", kind, string(text))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var problems strings.Builder
	cmd.Stderr = &problems
	printed, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", kind, err, problems.String())
	}
	err = json.Unmarshal(printed, &out)
	return out, err
}

// load runs the generator in a process of its own against a base URL.
func (g *Rig) load(ctx context.Context, target string, l lean.Load) (lean.Outcome, error) {
	l.Addr, l.Body = strings.TrimPrefix(target, "http://"), bodyBytes
	if l.Conns == 0 {
		l.Conns = conns
	}
	return run[lean.Outcome](ctx, g, childLoad, l)
}

// start launches a child that serves and returns when it does.
func (g *Rig) start(ctx context.Context, kind, ready string, spec any) (*harness.Process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	dir, err := g.place(kind)
	if err != nil {
		return nil, err
	}
	p := harness.NewProcess(kind, g.Self, []string{"child", kind, string(text)}, ready, filepath.Join(dir, "log"))
	return p, errors.Join(p.Start(ctx))
}

// far is a receiver in a process of its own.
type far struct {
	spec    receiverSpec
	process *harness.Process
}

// plan chooses the ports of a receiver that is started later.
func (g *Rig) plan(ctx context.Context, spec receiverSpec) (*far, error) {
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = harness.FreePort(ctx); err != nil {
			return nil, err
		}
	}
	spec.Listen, spec.Control = harness.Address(ports[0]), harness.Address(ports[1])
	return &far{spec: spec}, nil
}

func (f *far) start(ctx context.Context, g *Rig) error {
	p, err := g.start(ctx, childReceiver, "http://"+f.spec.Control+"/ready", f.spec)
	f.process = p
	return err
}

func (f *far) url() string { return "http://" + f.spec.Listen + "/" }

func (f *far) close() error {
	if f.process == nil {
		return nil
	}
	return f.process.Close()
}

func (f *far) count(ctx context.Context) (int, error) {
	var n int
	err := harness.GetJSON(ctx, "http://"+f.spec.Control+"/count", &n)
	return n, err
}

// repeats is the number of requests beyond the first of each hook.
func (f *far) repeats(ctx context.Context) (int, error) {
	var n int
	err := harness.GetJSON(ctx, "http://"+f.spec.Control+"/repeats", &n)
	return n, err
}

// arrivals are the hooks with the time of their first arrival.
func (f *far) arrivals(ctx context.Context) ([]lean.Answered, error) {
	var list []lean.Answered
	err := harness.GetJSON(ctx, "http://"+f.spec.Control+"/arrivals", &list)
	return list, err
}

// until returns the time at which n had arrived.
func (f *far) until(ctx context.Context, n int) (time.Time, error) {
	var at time.Time
	err := harness.GetJSON(ctx, fmt.Sprintf("http://%s/until/%d", f.spec.Control, n), &at)
	return at, err
}

// source is one that takes everything and delivers it to url.
func source(url string) map[string]any {
	return map[string]any{"raw": map[string]any{
		"verify": map[string]any{"type": "none"},
		"sinks":  []any{map[string]any{"type": "http", "url": url, "secret": receiver.Secret}},
	}}
}

// path is where the source takes hooks.
const path = "/webhooks/raw"

// product starts the one-process binary on a fresh store.
func (g *Rig) product(ctx context.Context, sinkURL string, s harness.Settings) (*harness.Cluster, error) {
	dir, err := g.place("product")
	if err != nil {
		return nil, err
	}
	c, err := harness.StartOne(ctx, harness.Options{Bin: g.Bin, Dir: dir, Sources: source(sinkURL), Settings: s})
	if err != nil && c != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, err
}

// raised are dispatch settings that let one destination have all that the machine gives.
func raised(concurrency int) harness.Settings {
	return harness.Settings{
		"runner.slots": concurrency, "dispatch.sink_concurrency": concurrency, "dispatch.max_inflight": 16384,
		"dispatch.tenants": map[string]any{"default": map[string]any{"concurrency": concurrency, "max_inflight": 16384, "max_inflight_bytes": 128 << 20}},
	}
}
