package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/stage"
)

const (
	parkedRows = 1_000_000
	// parkedProbes is how many probes there are in the time that is watched, or one less.
	parkedProbes = 3
)

// parked counts what a scheduler writes while all its rows wait behind an open breaker.
func parked(ctx context.Context, g *Rig) (figure.Result, error) {
	rows, open := g.rows(parkedRows), g.Watch/parkedProbes
	cfg := raised()
	cfg.Core.Breakers.Open, cfg.Core.Breakers.MaxOpen = open, open
	var sum stage.Counts
	var probes int
	err := g.on(ctx, waiting(1, rows), cfg, func(ctx context.Context, s *stage.Stage) error {
		o := crew()
		o.Class = dispatchv1.Class_CLASS_TRANSIENT
		c, err := full(ctx, s, o)
		if err != nil {
			return err
		}
		sum, probes, err = g.watchParked(ctx, s, c)
		return errors.Join(err, c.Close())
	})
	if err != nil {
		return figure.Result{}, err
	}
	// Each renewal of the lease is a transaction, and so is the end of each probe.
	more := float64(sum.Transactions - sum.Calls["lease"] - probes)
	return figure.Result{
		Value: more, Unit: "transactions, of which none are allowed", Against: "nothing",
		Limits: g.limits(map[string]any{
			"parked": rows, "tenants": 1, "seconds": g.Watch.Seconds() * float64(g.Repeat),
			"breaker_failures": cfg.Core.Breakers.Failures, "breaker_open_ms": open.Milliseconds(),
		}),
		Figures: map[string]any{
			"transactions": sum.Transactions, "of_probes": probes, "of_the_lease": sum.Calls["lease"], "others": more, "bar_others": 0,
			"keys_written": sum.Writes, "calls_by_class": sum.Calls,
		},
	}, nil
}

// watchParked lets the breaker open, and counts from then on.
func (g *Rig) watchParked(ctx context.Context, s *stage.Stage, c *stage.Crew) (sum stage.Counts, probes int, err error) {
	if err := c.Release(); err != nil {
		return sum, 0, err
	}
	still := func() error {
		return errors.Join(
			s.Reaches(ctx, "ankusa_dispatch_breakers_open", func(v float64) bool { return v == 1 }),
			s.Reaches(ctx, "ankusa_dispatch_running", func(v float64) bool { return v == 0 }),
			s.Settles(ctx, quiet))
	}
	if err := still(); err != nil {
		return sum, 0, err
	}
	before, taken := s.Counts(), c.Now().Taken
	for i := range g.Repeat {
		if err := pause(ctx, g.Watch); err != nil {
			return sum, 0, err
		}
		g.say("  %d of %d: %d transactions", i+1, g.Repeat, s.Counts().Sub(before).Transactions)
	}
	if err := still(); err != nil {
		return sum, 0, err
	}
	if probes = c.Now().Taken - taken; probes == 0 {
		return sum, 0, fmt.Errorf("no probe within %s", g.Watch*time.Duration(g.Repeat))
	}
	return s.Counts().Sub(before), probes, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
