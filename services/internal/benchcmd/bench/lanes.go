package bench

import (
	"context"
	"fmt"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
)

const (
	lanesManyBar = 0.7
	lanesOneBar  = 1.05 // no slower, but for what two equal runs differ by
	lanesMany    = 2000
	lanesMembers = 50
	lanesOne     = 50_000
	// lanesTimed is the members at each end of the long lane that are timed, unless all of it is.
	lanesTimed = 2500
)

// lanes compares many lanes with the same hooks unordered, and the end of a long lane with its begin.
func lanes(ctx context.Context, g *Rig) (figure.Result, error) {
	many, hooks, one := g.rows(lanesMany), g.rows(lanesMany)*lanesMembers, g.rows(lanesOne)
	rate := func(t seed.Template) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return g.rate(ctx, t, raised(), hooks/5, hooks) }
	}
	var starts, ends figure.Samples
	s, err := g.interleave(ctx, rate(ordered(many, lanesMembers, 0)), rate(waiting(1, hooks)),
		func(ctx context.Context) (float64, error) {
			start, end, err := g.longLane(ctx, one)
			if err != nil {
				return 0, err
			}
			starts, ends = append(starts, start), append(ends, end)
			return start / end, nil
		})
	if err != nil {
		return figure.Result{}, err
	}
	ratio, slower := s[0].Median()/s[1].Median(), s[2].Median()
	return figure.Result{
		Value: max(lanesManyBar/ratio, slower/lanesOneBar), Unit: "worse of bar/figure and figure/bar",
		Against: "the same hooks unordered, and the start of the long lane",
		Spread:  max(s[0].Spread(), s[1].Spread(), s[2].Spread()),
		Limits: g.limits(map[string]any{
			"lanes": many, "members": lanesMembers, "long_lane": one, "long_lane_timed": g.longLaneTimed(), "tenants": 1, "warm_rows": hooks / 5,
		}),
		Figures: map[string]any{
			"rows_per_second": s[0].Median(), "unordered_rows_per_second": s[1].Median(), "ratio": ratio, "bar_ratio_at_least": lanesManyBar,
			"long_lane_start_per_second": starts.Median(), "long_lane_end_per_second": ends.Median(),
			"long_lane_slower_at_end": slower, "bar_slower_at_most": lanesOneBar,
		},
	}, nil
}

func (g *Rig) longLaneTimed() string {
	if g.WholeLane {
		return "the first and the last fifth, with one leader from start to end"
	}
	return fmt.Sprintf("the first and the last %d, the last with a leader that finds all before them settled", g.rows(lanesTimed))
}

// ordered is a store in which one tenant has lanes with as many members each, of which the first have been delivered.
func ordered(lanes, members, delivered int) seed.Template {
	return seed.Template{
		Name: fmt.Sprintf("lanes-%dx%d-%d", lanes, members, delivered), Restless: delivered > 0,
		Fill: func(ctx context.Context, s *seed.Seeder) error {
			src, err := s.Source(ctx, "ordered", true)
			if err != nil {
				return err
			}
			rows := seed.Rows{Source: src, Tenants: tenants("active", 1), Each: lanes * delivered, Lanes: lanes, Then: seed.Delivered}
			if err := s.Add(ctx, rows); err != nil {
				return err
			}
			rows.Each, rows.Then = lanes*(members-delivered), nil
			return s.Add(ctx, rows)
		},
	}
}

// longLane is the rates of one lane at its start and at its end.
func (g *Rig) longLane(ctx context.Context, rows int) (start, end float64, err error) {
	if g.WholeLane {
		marks, err := g.drain(ctx, ordered(1, rows, 0), raised(), 1, rows/5, rows*4/5, rows)
		if err != nil {
			return 0, 0, err
		}
		return marks[1].Rate(marks[0]), marks[3].Rate(marks[2]), nil
	}
	timed := g.rows(lanesTimed)
	first, err := g.drain(ctx, ordered(1, rows, 0), raised(), 1, timed)
	if err != nil {
		return 0, 0, err
	}
	last, err := g.drain(ctx, ordered(1, rows, rows-timed), raised(), 1, timed)
	if err != nil {
		return 0, 0, err
	}
	return first[1].Rate(first[0]), last[1].Rate(last[0]), nil
}
