package bench

import (
	"context"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
)

const (
	tombstonesBar     = 1.2
	tombstonesSettled = 1_000_000
	tombstonesWaiting = 120_000
)

// tombstones compares the claim rate of a sink of which a million rows were settled with that of one without a past.
func tombstones(ctx context.Context, g *Rig) (figure.Result, error) {
	rows, past := g.rows(tombstonesWaiting), g.rows(tombstonesSettled)
	buried := seed.Template{Name: "tombstones", Restless: true, Fill: func(ctx context.Context, s *seed.Seeder) error {
		src, err := s.Source(ctx, "active", false)
		if err != nil {
			return err
		}
		active := tenants("active", 1)
		if err := s.Add(ctx, seed.Rows{Source: src, Tenants: active, Each: past, Then: seed.Delivered}); err != nil {
			return err
		}
		return s.Add(ctx, seed.Rows{Source: src, Tenants: active, Each: beyond(rows)})
	}}
	rate := func(t seed.Template) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return g.rate(ctx, t, raised(), g.rows(warmRows), rows) }
	}
	s, err := g.interleave(ctx, rate(buried), rate(waiting(1, beyond(rows))))
	if err != nil {
		return figure.Result{}, err
	}
	slower := s[1].Median() / s[0].Median()
	return figure.Result{
		Value: slower / tombstonesBar, Unit: "figure/bar", Against: "the same waiting rows of a sink without a past",
		Spread: max(s[0].Spread(), s[1].Spread()),
		Limits: g.limits(map[string]any{"settled": past, "waiting": rows, "tenants": 1}),
		Figures: map[string]any{
			"rows_per_second": s[0].Median(), "without_rows_per_second": s[1].Median(), "slower": slower, "bar_at_most": tombstonesBar,
		},
	}, nil
}
