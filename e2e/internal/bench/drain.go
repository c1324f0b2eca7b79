package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

const (
	drainBar   = 1.5
	drainHooks = 20_000
	drainDelay = 5 * time.Millisecond
	drainSlots = 32
)

// drainSettings let every waiting hook be due within a second of the receiver's return: no breaker waits for its probe.
func drainSettings() harness.Settings {
	s := raised(drainSlots)
	s["dispatch.retry.max_ms"], s["dispatch.breaker_failures"] = 1000, 0
	return s
}

// drain compares the time that a backlog takes with that of a plain client of the same concurrency.
func drain(ctx context.Context, g *Rig) (Result, error) {
	ours, theirs, err := g.interleave(ctx, g.drainProduct, g.drainBare)
	if err != nil {
		return Result{}, err
	}
	ratio := ours.median() / theirs.median()
	return Result{
		Bench: "drain", Value: ratio / drainBar, Unit: "figure/bar",
		Against: "a net/http client that posts as many bodies with the same concurrency",
		Spread:  max(ours.spread(), theirs.spread()),
		Limits: g.limits(map[string]any{
			"hooks": drainHooks, "receiver_delay_ms": drainDelay.Milliseconds(), "concurrency": drainSlots,
			"history": true, "settings": drainSettings(),
		}),
		Figures: map[string]any{
			"seconds": ours.median(), "bare_seconds": theirs.median(), "ratio": ratio, "bar_at_most": drainBar,
		},
	}, nil
}

// drainProduct counts from the moment at which the receiver is there.
func (g *Rig) drainProduct(ctx context.Context) (float64, error) {
	f, err := g.plan(ctx, receiverSpec{Delay: drainDelay, First: true})
	if err != nil {
		return 0, err
	}
	c, err := g.product(ctx, f.url(), drainSettings())
	if err != nil {
		return 0, err
	}
	took, err := g.backlog(ctx, c.Targets[0], f)
	return took.Seconds(), errors.Join(closing(err, c), f.close())
}

func (g *Rig) backlog(ctx context.Context, target string, f *far) (time.Duration, error) {
	out, err := g.load(ctx, target, lean.Load{Path: path, Count: drainHooks})
	if err != nil {
		return 0, err
	}
	if out.Accepted != drainHooks {
		return 0, fmt.Errorf("%d of %d hooks were accepted", out.Accepted, drainHooks)
	}
	if err := f.start(ctx, g); err != nil {
		return 0, err
	}
	began := time.Now()
	ended, err := f.until(ctx, drainHooks)
	return ended.Sub(began), err
}

func (g *Rig) drainBare(ctx context.Context) (float64, error) {
	f, err := g.plan(ctx, receiverSpec{Delay: drainDelay})
	if err != nil {
		return 0, err
	}
	if err := f.start(ctx, g); err != nil {
		return 0, err
	}
	took, err := run[time.Duration](ctx, g, childDrain, drainSpec{URL: f.url(), N: drainHooks, Workers: drainSlots, Bytes: bodyBytes})
	return took.Seconds(), errors.Join(err, f.close())
}
