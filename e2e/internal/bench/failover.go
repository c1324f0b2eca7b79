package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

const (
	failLease = 5 * time.Second  // the default
	failGrace = 15 * time.Second // the default
	failBar   = 2*failLease + failGrace
	failRate  = 200
	failDelay = 20 * time.Millisecond // of the receiver, so that attempts are under way at any time
	// failBefore and failAfter are the load's times before the leader is killed and after.
	failBefore, failAfter = 4 * time.Second, 14 * time.Second
	failSchedulers        = 3
)

func failSettings() harness.Settings {
	return harness.Settings{
		"scheduler.lease_ms": failLease.Milliseconds(), "scheduler.runner_grace_ms": failGrace.Milliseconds(),
		"dispatch.breaker_failures": 0,
	}
}

// failover kills the leading scheduler of a deployment in several processes under load, and measures how long nothing
// new is claimed. Runners keep what they run, and connect to the next leader.
func failover(ctx context.Context, g *Rig) (Result, error) {
	var gaps samples
	repeats := 0
	for i := range g.Repeat {
		gap, again, err := g.failOver(ctx)
		if err != nil {
			return Result{}, fmt.Errorf("repetition %d: %w", i+1, err)
		}
		gaps, repeats = append(gaps, gap), repeats+again
		g.say("  %d of %d: nothing new for %.3g s, %d deliveries repeated", i+1, g.Repeat, gap, again)
	}
	value := gaps.median() / failBar.Seconds()
	if repeats > 0 {
		value = max(value, 1+float64(repeats)) // the bar is none at all
	}
	return Result{
		Bench: "failover", Value: value, Unit: "figure/bar", Against: "nothing", Spread: gaps.spread(),
		Limits: g.limits(map[string]any{
			"store": "tikvmock", "rate_per_second": failRate, "connections": failConns, "receiver_delay_ms": failDelay.Milliseconds(),
			"processes": fmt.Sprintf("%d schedulers, 2 ingests, 2 sink-runners", failSchedulers), "settings": failSettings(),
		}),
		Figures: map[string]any{
			"seconds_without_a_claim": gaps.median(), "bar_seconds": failBar.Seconds(), "worst_seconds": slices.Max(gaps),
			"duplicates": repeats, "bar_duplicates": 0,
		},
	}, nil
}

const failConns = 16

func (g *Rig) failOver(ctx context.Context) (gap float64, repeats int, err error) {
	f, err := g.plan(ctx, receiverSpec{First: true, Delay: failDelay})
	if err == nil {
		err = f.start(ctx, g)
	}
	if err != nil {
		return 0, 0, err
	}
	dir, err := g.place("four")
	if err != nil {
		return 0, 0, errors.Join(err, f.close())
	}
	c, err := harness.StartFour(ctx, harness.Options{
		Bin: g.Bin, Dir: dir, Sources: source(f.url()), Settings: failSettings(), Schedulers: failSchedulers, Ingests: 2, Runners: 2,
	})
	if err == nil {
		gap, repeats, err = g.killLeader(ctx, c, f)
	}
	return gap, repeats, errors.Join(closing(err, c), f.close())
}

func (g *Rig) killLeader(ctx context.Context, c *harness.Cluster, f *far) (gap float64, repeats int, err error) {
	type sent struct {
		lean.Outcome
		err error
	}
	loads := make(chan sent, len(c.Targets))
	for _, target := range c.Targets {
		go func() {
			out, err := g.load(ctx, target, lean.Load{
				Path: path, Conns: failConns, Rate: failRate / float64(len(c.Targets)),
				Count: int((failBefore + failAfter).Seconds()) * failRate / len(c.Targets),
			})
			loads <- sent{out, err}
		}()
	}
	killed, err := g.killAfter(ctx, c, failBefore)
	accepted := 0
	for range c.Targets {
		out := <-loads
		err = errors.Join(err, out.err)
		accepted += out.Accepted
	}
	if err != nil {
		return 0, 0, err
	}
	soon, cancel := context.WithTimeout(ctx, 2*failBar)
	defer cancel()
	if _, err := f.until(soon, accepted); err != nil {
		return 0, 0, fmt.Errorf("not all of %d hooks were delivered: %w", accepted, err)
	}
	arrivals, err := f.arrivals(ctx)
	if err != nil {
		return 0, 0, err
	}
	repeats, err = f.repeats(ctx)
	return longestGap(arrivals, killed).Seconds(), repeats, err
}

func (g *Rig) killAfter(ctx context.Context, c *harness.Cluster, d time.Duration) (killed time.Time, err error) {
	if err := wait(ctx, d); err != nil {
		return killed, err
	}
	leader, err := c.Leader(ctx)
	if err != nil {
		return killed, err
	}
	killed = time.Now()
	return killed, c.Schedulers[leader].Kill()
}

// longestGap is the longest time without the first arrival of any hook that ended after a moment.
func longestGap(arrivals []lean.Answered, after time.Time) time.Duration {
	slices.SortFunc(arrivals, func(a, b lean.Answered) int { return a.At.Compare(b.At) })
	longest := time.Duration(0)
	for i := 1; i < len(arrivals); i++ {
		if arrivals[i].At.After(after) {
			longest = max(longest, arrivals[i].At.Sub(arrivals[i-1].At))
		}
	}
	return longest
}
