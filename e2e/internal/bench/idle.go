package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

const (
	idleTime = 60 * time.Second
	idleWarm = 15 * time.Second
	idleCPU  = 0.5 // per cent of a core
)

// exempt are the classes of calls that an idle product may make: it keeps its lease, its processes' records and its
// store in order, and a ready probe is a write.
var exempt = []string{"lease", "writer", "runner", "gc", "ready"}

// idle measures what a product does that has nothing to do.
func idle(ctx context.Context, g *Rig) (Result, error) {
	f, err := g.plan(ctx, receiverSpec{First: true})
	if err != nil {
		return Result{}, err
	}
	if err := f.start(ctx, g); err != nil {
		return Result{}, err
	}
	c, err := g.product(ctx, f.url(), nil)
	if err != nil {
		return Result{}, errors.Join(err, f.close())
	}
	result, err := g.watch(ctx, c, f)
	return result, errors.Join(closing(err, c), f.close())
}

// watch lets some hooks through first: a product that never worked has nothing that could go on by mistake.
func (g *Rig) watch(ctx context.Context, c *harness.Cluster, f *far) (Result, error) {
	if _, err := g.load(ctx, c.Targets[0], lean.Load{Path: path, Count: 500}); err != nil {
		return Result{}, err
	}
	if _, err := f.until(ctx, 500); err != nil {
		return Result{}, err
	}
	if err := probe(ctx, c.One.Ready, idleWarm); err != nil {
		return Result{}, err
	}
	calls, err := storeCalls(ctx, c.Metrics[c.One.Name])
	if err != nil {
		return Result{}, err
	}
	// Five windows show how even it is.
	var cpu samples
	for range 5 {
		used, err := cpuWhile(c.One.PID(), func() error { return probe(ctx, c.One.Ready, idleTime/5) })
		if err != nil {
			return Result{}, err
		}
		cpu = append(cpu, 100*used.Seconds()/(idleTime/5).Seconds())
	}
	after, err := storeCalls(ctx, c.Metrics[c.One.Name])
	if err != nil {
		return Result{}, err
	}
	return g.idleResult(calls, after, cpu), nil
}

func (g *Rig) idleResult(before, after map[string]float64, cpu samples) Result {
	byClass, counted := map[string]float64{}, 0.0
	for class, n := range after {
		byClass[class] = n - before[class]
		if !slices.Contains(exempt, class) {
			counted += n - before[class]
		}
	}
	var mean float64
	for _, c := range cpu {
		mean += c / float64(len(cpu))
	}
	value := mean / idleCPU
	if counted > 0 {
		value = max(value, 1+counted) // the bar is none at all
	}
	return Result{
		Bench: "idle", Value: value, Unit: "figure/bar", Against: "nothing", Spread: cpu.spread(),
		Limits: g.limits(map[string]any{
			"seconds": idleTime.Seconds(), "repeat": "one minute in 5 windows", "ready_probes_per_second": 1, "exempt": exempt, "connections": 0,
		}),
		Figures: map[string]any{
			"store_calls": counted, "bar_store_calls": 0, "store_calls_by_class": byClass,
			"cpu_percent_of_a_core": mean, "bar_cpu_percent": idleCPU,
		},
	}
}

// probe asks once a second whether the product is ready, for the whole time.
func probe(ctx context.Context, url string, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil
			}
			return ctx.Err()
		}
		if err := ready(ctx, url); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// storeCalls are the calls through the port to the store so far, by class.
func storeCalls(ctx context.Context, url string) (map[string]float64, error) {
	samples, err := harness.Scrape(ctx, url)
	if err != nil {
		return nil, err
	}
	calls := map[string]float64{}
	for _, s := range samples {
		if s.Name == "ankusa_store_calls_total" {
			calls[s.Labels["class"]] += s.Value
		}
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("%s has no ankusa_store_calls_total", url)
	}
	return calls, nil
}

func cpuWhile(pid int, do func() error) (time.Duration, error) {
	before, err := harness.CPU(pid)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := harness.CPU(pid)
	return after - before, err
}
