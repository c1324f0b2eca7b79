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
	idleTenantsBar  = 1.1
	idleTenantsRows = 120_000
	idleTenantCount = 10_000
	idleTenantsDue  = 7 * 24 * time.Hour
)

// idleTenants compares the processor time of a row with and without many tenants that have one row due in a week.
func idleTenants(ctx context.Context, g *Rig) (figure.Result, error) {
	rows, idle := g.rows(idleTenantsRows), g.rows(idleTenantCount)
	crowded := seed.Template{Name: "idle-tenants", Fill: func(ctx context.Context, s *seed.Seeder) error {
		if err := addWaiting(ctx, s, 1, beyond(rows)); err != nil {
			return err
		}
		src, err := s.Source(ctx, "idle", false)
		if err != nil {
			return err
		}
		return s.Add(ctx, seed.Rows{Source: src, Tenants: tenants("idle", idle), Each: 1, Then: seed.Failed(idleTenantsDue)})
	}}
	cost := func(t seed.Template, keys int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return shortRuns(func() (float64, error) { return g.rowCost(ctx, t, rows, keys) })
		}
	}
	s, err := g.interleave(ctx, cost(crowded, idle+1), cost(waiting(1, beyond(rows)), 1))
	if err != nil {
		return figure.Result{}, err
	}
	ratio := s[0].Median() / s[1].Median()
	return figure.Result{
		Value: ratio / idleTenantsBar, Unit: "figure/bar", Against: "the same rows of the active tenant, alone in the store",
		Spread: max(s[0].Spread(), s[1].Spread()),
		Limits: g.limits(map[string]any{
			"rows": rows, "active_tenants": 1, "idle_tenants": idle, "idle_rows_due_in_hours": idleTenantsDue.Hours(),
			"cost": "processor time of the process, runners included",
		}),
		Figures: map[string]any{
			"cpu_us_per_row": s[0].Median(), "alone_cpu_us_per_row": s[1].Median(), "ratio": ratio, "bar_at_most": idleTenantsBar,
		},
	}, nil
}

// rowCost is the microseconds of processor time that a row costs once the scheduler knows all keys that have rows.
func (g *Rig) rowCost(ctx context.Context, t seed.Template, rows, keys int) (cost float64, err error) {
	err = g.on(ctx, t, raised(), func(ctx context.Context, s *stage.Stage) error {
		c, err := full(ctx, s, crew())
		if err != nil {
			return err
		}
		err = s.Reaches(ctx, "ankusa_dispatch_keys", func(v float64) bool { return v == float64(keys) })
		if err != nil {
			return errors.Join(err, c.Close())
		}
		err = g.profile(func() error {
			at, err := laps(ctx, c, g.rows(warmRows), rows)
			if err == nil {
				cost = at[1].Cost(at[0])
			}
			return err
		})
		return errors.Join(err, c.Close())
	})
	return cost, err
}
