package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"go.uber.org/zap"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/benchcmd/stage"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/scheduler"
	"ankusa.dev/services/internal/scheduler/core"
)

// Rig is what benchmarks run on.
type Rig struct {
	// Library makes the stores.
	Library *seed.Library
	// Repeat is how often each side is measured.
	Repeat int
	// Scale divides the number of rows: 1 is what the bars hold for, more is for trying out.
	Scale int
	// Watch is how long rows behind an open breaker are watched, for each repetition.
	Watch time.Duration
	// Profile takes a profile of the processor over the measured time of the product's first run; empty for none.
	Profile string
	// Log takes progress.
	Log io.Writer

	profiled bool
}

// NewRig keeps stores in a directory, which the caller removes, and measures once at full scale.
func NewRig(dir string, log io.Writer) *Rig {
	l := &seed.Library{Dir: dir, Options: local.Default(), Quiet: time.Second, Log: log}
	return &Rig{Library: l, Repeat: 1, Scale: 1, Watch: 5 * time.Second, Log: log}
}

const (
	// window is the most rows claimed, in all and of one tenant.
	window = 4096
	// windowBytes does not bound rows as small as these.
	windowBytes = 1 << 30
	// runners and their slots; no other cap bounds the attempts at once.
	runners     = 2
	runnerSlots = 2048
	// warmRows are settled before a measurement begins.
	warmRows = 20_000
	// patience bounds one run.
	patience = 20 * time.Minute
)

// raised is the product's defaults, with windows and caps out of the way and without history.
func raised() scheduler.Config {
	d, s := config.Default().Dispatch, config.Default().Scheduler
	return scheduler.Config{
		Core: core.Config{
			Batch: d.Batch, MaxInflight: window, MaxInflightBytes: windowBytes, Concurrency: runners * runnerSlots,
			AttemptTimeout: d.AttemptTimeout, LeaseMargin: s.LeaseMargin, Grace: s.RunnerGrace,
			Breakers: core.Breakers{Failures: d.BreakerFailures, Open: d.BreakerOpen, MaxOpen: d.BreakerMaxOpen},
			Default: core.Limits{
				MaxInflight: window, MaxInflightBytes: windowBytes, Concurrency: runners * runnerSlots,
			},
		},
		Retry: d.RetryPolicy(), Lease: s.Lease, Renew: s.Renew, Exclusive: true,
	}
}

// windowed is raised with other windows.
func windowed(rows int) scheduler.Config {
	cfg := raised()
	cfg.Core.MaxInflight, cfg.Core.Default.MaxInflight = rows, rows
	return cfg
}

// limits describe the machine and the settings, and what the caller adds.
func (g *Rig) limits(more map[string]any) map[string]any {
	c := raised().Core
	all := map[string]any{
		"cpus": runtime.NumCPU(), "go": runtime.Version(), "os": runtime.GOOS + "/" + runtime.GOARCH,
		"repeat": g.Repeat, "store": "local", "history": false, "batch": c.Batch, "max_inflight": c.MaxInflight,
		"sink_concurrency": nil, "runners": runners, "slots": runners * runnerSlots, "warm_rows": g.rows(warmRows),
		"shared_machine": "scheduler, store and runners in one process, over gRPC",
	}
	if g.Scale > 1 {
		all["rows_divided_by"] = g.Scale
	}
	maps.Copy(all, more)
	return all
}

func (g *Rig) say(format string, args ...any) { _, _ = fmt.Fprintf(g.Log, format+"\n", args...) }

// rows is a number of rows under the rig's scale.
func (g *Rig) rows(n int) int { return max(1, n/g.Scale) }

// interleave measures sides in turns, so that a drift of the machine meets all of them.
func (g *Rig) interleave(ctx context.Context, sides ...func(context.Context) (float64, error)) ([]figure.Samples, error) {
	samples := make([]figure.Samples, len(sides))
	for i := range g.Repeat {
		for s, measure := range sides {
			f, err := measure(ctx)
			if err != nil {
				return nil, fmt.Errorf("repetition %d: %w", i+1, err)
			}
			samples[s] = append(samples[s], f)
		}
		last := make([]string, len(sides))
		for s := range sides {
			last[s] = fmt.Sprintf("%.5g", samples[s][i])
		}
		g.say("  %d of %d: %v", i+1, g.Repeat, last)
	}
	return samples, nil
}

// on runs do on a stage whose store is a fresh copy of a template. The scheduler does not lead yet.
func (g *Rig) on(
	ctx context.Context, t seed.Template, cfg scheduler.Config, do func(context.Context, *stage.Stage) error,
) error {
	port, remove, err := g.Library.Open(ctx, t)
	if err != nil {
		return err
	}
	return errors.Join(onPort(ctx, port, cfg, do), remove())
}

// onPort is on for any store.
func onPort(
	ctx context.Context, port kv.Store, cfg scheduler.Config, do func(context.Context, *stage.Stage) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := stage.Open(ctx, port, cfg, zap.NewNop())
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, s), s.Close())
}

// crew is what every benchmark's runners are.
func crew() stage.CrewOptions {
	return stage.CrewOptions{Runners: runners, Slots: runnerSlots, Class: dispatchv1.Class_CLASS_DELIVERED}
}

// full leads, lets the scheduler claim until its windows are full or nothing is left, and hires runners that wait.
func full(ctx context.Context, s *stage.Stage, o stage.CrewOptions) (*stage.Crew, error) {
	if err := s.Lead(); err != nil {
		return nil, err
	}
	if err := s.Reaches(ctx, "ankusa_scheduler_leading", func(v float64) bool { return v == 1 }); err != nil {
		return nil, err
	}
	if err := s.Settles(ctx, quiet); err != nil {
		return nil, err
	}
	o.Held = true
	return s.Hire(ctx, o)
}

// quiet is how long a store is not called when the scheduler has read all that it wants to.
const quiet = 100 * time.Millisecond

// profile takes a profile while do runs, the first time that it is asked to.
func (g *Rig) profile(do func() error) error {
	if g.Profile == "" || g.profiled {
		return do()
	}
	g.profiled = true
	f, err := os.Create(g.Profile)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = do()
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
}

// rate is settled rows per second between two numbers of settled rows of a template, all of them there from the start.
func (g *Rig) rate(ctx context.Context, t seed.Template, cfg scheduler.Config, from, to int) (rate float64, err error) {
	err = g.on(ctx, t, cfg, func(ctx context.Context, s *stage.Stage) error {
		c, err := full(ctx, s, crew())
		if err != nil {
			return err
		}
		err = g.profile(func() error {
			at, err := laps(ctx, c, from, to)
			if err == nil {
				rate = at[1].Rate(at[0])
			}
			return err
		})
		return errors.Join(err, c.Close())
	})
	return rate, err
}

// shortRuns makes one sample of some runs that take about a second each.
func shortRuns(run func() (float64, error)) (float64, error) {
	var all figure.Samples
	for range 3 {
		one, err := run()
		if err != nil {
			return 0, err
		}
		all = append(all, one)
	}
	return all.Median(), nil
}

// beyond is the rows to seed so that a given number of them can end while there still are rows to claim.
func beyond(rows int) int { return rows + window }

// laps releases a crew and returns the moments at which numbers of rows were settled.
func laps(ctx context.Context, c *stage.Crew, settled ...int) ([]stage.Lap, error) {
	if err := c.Release(); err != nil {
		return nil, err
	}
	at := make([]stage.Lap, len(settled))
	for i, n := range settled {
		var err error
		if at[i], err = c.Settled(ctx, n); err != nil {
			return nil, err
		}
	}
	return at, nil
}
