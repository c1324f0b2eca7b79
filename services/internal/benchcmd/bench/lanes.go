package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/benchcmd/stage"
)

const (
	lanesManyBar = 0.7
	lanesOneBar  = 1.05 // no slower, but for what two equal runs differ by
	lanesMany    = 2000
	lanesMembers = 50
	lanesOne     = 50_000
	// lanesTimed is the members at each end of the long lane that are timed.
	lanesTimed = 5000
)

// lanes compares many lanes with the same hooks unordered, and the end of a long lane with its begin.
func lanes(ctx context.Context, g *Rig) (figure.Result, error) {
	many, hooks, one := g.rows(lanesMany), g.rows(lanesMany)*lanesMembers, g.rows(lanesOne)
	rate := func(t seed.Template) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return shortRuns(func() (float64, error) { return g.rate(ctx, t, raised(), hooks/5, hooks) })
		}
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
			"lanes": many, "members": lanesMembers, "long_lane": one, "long_lane_timed": g.rows(lanesTimed), "tenants": 1, "warm_rows": hooks / 5,
		}),
		Figures: map[string]any{
			"rows_per_second": s[0].Median(), "unordered_rows_per_second": s[1].Median(), "ratio": ratio, "bar_ratio_at_least": lanesManyBar,
			"long_lane_start_per_second": starts.Median(), "long_lane_end_per_second": ends.Median(), "long_lanes_at_once": 2,
			"long_lane_slower_at_end": slower, "bar_slower_at_most": lanesOneBar,
		},
	}, nil
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

// longLane is the pace of one lane at its start and at that of its last rows, by a leader that finds all others settled.
// Both go side by side, so that both have what the disk and the processors give at that moment.
func (g *Rig) longLane(ctx context.Context, rows int) (start, end float64, err error) {
	timed := g.rows(lanesTimed)
	err = g.on(ctx, ordered(1, rows, 0), raised(), func(ctx context.Context, first *stage.Stage) error {
		return g.on(ctx, ordered(1, rows, rows-timed), raised(), func(ctx context.Context, last *stage.Stage) error {
			start, end, err = sideBySide(ctx, first, last, timed)
			return err
		})
	})
	return start, end, err
}

// sideBySide is the rates of two stages over the time until the first of them has settled a number of rows.
func sideBySide(ctx context.Context, a, b *stage.Stage, rows int) (rateA, rateB float64, err error) {
	one, err := full(ctx, a, crew())
	if err != nil {
		return 0, 0, err
	}
	other, err := full(ctx, b, crew())
	if err != nil {
		return 0, 0, errors.Join(err, one.Close())
	}
	rateA, rateB, err = common(ctx, one, other, rows)
	return rateA, rateB, errors.Join(err, one.Close(), other.Close())
}

func common(ctx context.Context, one, other *stage.Crew, rows int) (rateOne, rateOther float64, err error) {
	if err := errors.Join(one.Release(), other.Release()); err != nil {
		return 0, 0, err
	}
	var began [2]stage.Lap
	for i, c := range []*stage.Crew{one, other} {
		if began[i], err = c.Settled(ctx, 1); err != nil {
			return 0, 0, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var both sync.WaitGroup
	first := make(chan error, 2)
	for _, c := range []*stage.Crew{one, other} {
		both.Go(func() {
			_, err := c.Settled(ctx, rows)
			first <- err
		})
	}
	err = <-first
	endOne, endOther := one.Now(), other.Now()
	cancel()
	both.Wait()
	return endOne.Rate(began[0]), endOther.Rate(began[1]), err
}
