package bench

import (
	"context"
	"errors"
	"time"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/benchcmd/stage"
)

const (
	takeoverBar     = 2.0 // seconds
	takeoverRateBar = 1.2
	takeoverSettled = 1_000_000
	takeoverWaiting = 100_000
	takeoverTenants = 1000
	takeoverIdle    = 100_000
	takeoverLanes   = 100_000
)

// takeover measures a new leader on a store that has much that it need not look at.
func takeover(ctx context.Context, g *Rig) (figure.Result, error) {
	b := &takeoverBench{rig: g}
	few := g.rows(takeoverTenants)
	plain := waiting(few, g.rows(takeoverWaiting)/few)
	s, err := g.interleave(ctx,
		func(ctx context.Context) (float64, error) { return b.rate(ctx, b.template()) },
		func(ctx context.Context) (float64, error) { return b.rate(ctx, plain) })
	if err != nil {
		return figure.Result{}, err
	}
	// The runs alternate, the crowded store first.
	var first, alone figure.Samples
	for i, f := range b.first {
		if i%2 == 0 {
			first = append(first, f)
		} else {
			alone = append(alone, f)
		}
	}
	slower := s[1].Median() / s[0].Median()
	return figure.Result{
		Value: max(first.Median()/takeoverBar, slower/takeoverRateBar), Unit: "figure/bar",
		Against: "the same waiting rows alone in the store",
		Spread:  max(first.Spread(), s[0].Spread(), s[1].Spread()),
		Limits: g.limits(map[string]any{
			"settled": g.rows(takeoverSettled), "waiting": g.rows(takeoverWaiting), "tenants": few, "idle_counters": g.rows(takeoverIdle),
			"lanes_of_one_member": g.rows(takeoverLanes), "warm_rows": 0,
		}),
		Figures: map[string]any{
			"first_claim_seconds": first.Median(), "bar_first_claim_seconds": takeoverBar, "alone_first_claim_seconds": alone.Median(),
			"rows_per_second": s[0].Median(), "alone_rows_per_second": s[1].Median(), "slower": slower, "bar_slower_at_most": takeoverRateBar,
		},
	}, nil
}

type takeoverBench struct {
	rig   *Rig
	first figure.Samples // seconds to the first claim, of all runs
}

// rate is that at which rows are claimed, those of lanes included, from the first to the last waiting row that is of no
// lane.
func (b *takeoverBench) rate(ctx context.Context, t seed.Template) (rate float64, err error) {
	rows := b.rig.rows(takeoverWaiting)
	err = b.rig.on(ctx, t, raised(), func(ctx context.Context, s *stage.Stage) error {
		began := time.Now()
		if err := s.Lead(); err != nil {
			return err
		}
		c, err := s.Hire(ctx, crew())
		if err != nil {
			return err
		}
		err = b.rig.profile(func() error {
			first, err := c.Until(ctx, func(l stage.Lap) bool { return l.Taken > 0 })
			if err != nil {
				return err
			}
			b.first = append(b.first, first.At.Sub(began).Seconds())
			last, err := c.Until(ctx, func(l stage.Lap) bool { return l.Unordered >= rows })
			rate = float64(last.Taken-first.Taken) / last.At.Sub(first.At).Seconds()
			return err
		})
		return errors.Join(err, c.Close())
	})
	return rate, err
}

func (b *takeoverBench) template() seed.Template {
	g := b.rig
	return seed.Template{Name: "takeover", Fill: func(ctx context.Context, s *seed.Seeder) error {
		active, err := s.Source(ctx, "active", false)
		if err != nil {
			return err
		}
		ordered, err := s.Source(ctx, "ordered", true)
		if err != nil {
			return err
		}
		some := tenants("active", g.rows(takeoverTenants))
		settled := (g.rows(takeoverSettled) - g.rows(takeoverIdle)) / len(some)
		for _, r := range []seed.Rows{
			{Source: active, Tenants: tenants("idle", g.rows(takeoverIdle)), Each: 1, Then: seed.Delivered},
			{Source: active, Tenants: some, Each: settled, Then: seed.Delivered},
			{Source: active, Tenants: some, Each: g.rows(takeoverWaiting) / len(some)},
			{Source: ordered, Tenants: tenants("ordered", 1), Each: g.rows(takeoverLanes), Lanes: g.rows(takeoverLanes)},
		} {
			if err := s.Add(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}}
}
