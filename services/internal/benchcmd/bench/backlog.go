package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/benchcmd/stage"
)

const (
	backlogHeapBar = 100.0 // MB
	backlogRateBar = 1.2
	backlogRows    = 1_000_000
	backlogSmall   = 10_000
	backlogTenants = 1000
	// backlogTimed rows of the million are timed.
	backlogTimed = 100_000
	// backlogWindow is small beside the small backlog, so that this has to be scanned, too.
	backlogWindow = 2048
)

// backlog compares heap and claim rate with a million rows waiting to those with few, for one tenant and for many.
func backlog(ctx context.Context, g *Rig) (figure.Result, error) {
	b := &backlogBench{rig: g}
	one, many := b.shape(1), b.shape(g.rows(backlogTenants))
	s, err := g.interleave(ctx, b.idle, one.large, one.small, many.large, many.small)
	if err != nil {
		return figure.Result{}, err
	}
	idle := slices.Min(s[0]) // earlier runs of the process leave a little behind
	heapOne, heapMany := one.heap.Median()-idle, many.heap.Median()-idle
	slowerOne, slowerMany := s[2].Median()/s[1].Median(), s[4].Median()/s[3].Median()
	return figure.Result{
		Value: max(heapOne/backlogHeapBar, heapMany/backlogHeapBar, slowerOne/backlogRateBar, slowerMany/backlogRateBar),
		Unit:  "figure/bar", Against: "the same scheduler with 10,000 rows waiting, and one with none",
		Spread: max(s[1].Spread(), s[2].Spread(), s[3].Spread(), s[4].Spread()),
		Limits: g.limits(map[string]any{
			"max_inflight": backlogWindow, "waiting": g.rows(backlogRows), "waiting_few": g.rows(backlogSmall), "timed": g.rows(backlogTimed), "many_tenants": g.rows(backlogTenants),
			"heap": "after two collections, windows full; the store's block cache and memory tables stand outside the Go heap where cgo is on, and have the same bounds on both sides",
		}),
		Figures: map[string]any{
			"one_tenant_rows_per_second": s[1].Median(), "one_tenant_few_rows_per_second": s[2].Median(), "one_tenant_slower": slowerOne,
			"many_tenants_rows_per_second": s[3].Median(), "many_tenants_few_rows_per_second": s[4].Median(), "many_tenants_slower": slowerMany,
			"bar_slower_at_most": backlogRateBar, "one_tenant_heap_mb_above_idle": heapOne, "many_tenants_heap_mb_above_idle": heapMany,
			"idle_heap_mb": idle, "bar_heap_mb_above_idle": backlogHeapBar,
		},
	}, nil
}

type backlogBench struct{ rig *Rig }

// idle is the heap of a scheduler that leads and has nothing to do.
func (b *backlogBench) idle(ctx context.Context) (heap float64, err error) {
	err = b.rig.on(ctx, waiting(1, 0), windowed(backlogWindow), func(ctx context.Context, s *stage.Stage) error {
		c, err := full(ctx, s, crew())
		if err != nil {
			return err
		}
		heap = liveHeap()
		return c.Close()
	})
	return heap, err
}

// liveHeap is the megabytes of what is still used of the heap.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // pools give up in two steps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// backlogShape is a number of tenants that share the waiting rows.
type backlogShape struct {
	rig     *Rig
	tenants int
	heap    figure.Samples
}

func (b *backlogBench) shape(tenants int) *backlogShape {
	return &backlogShape{rig: b.rig, tenants: tenants}
}

func (b *backlogShape) template(rows int) seed.Template { return waiting(b.tenants, rows/b.tenants) }

// large is the rate with all rows waiting. It takes the heap with full windows before the first row ends and in the
// middle of the work.
func (b *backlogShape) large(ctx context.Context) (rate float64, err error) {
	g := b.rig
	err = g.on(ctx, b.template(g.rows(backlogRows)), windowed(backlogWindow), func(ctx context.Context, s *stage.Stage) error {
		c, err := full(ctx, s, crew())
		if err != nil {
			return err
		}
		heap := liveHeap()
		err = g.profile(func() error {
			at, err := laps(ctx, c, g.rows(warmRows), g.rows(warmRows)+g.rows(backlogTimed))
			if err == nil {
				rate = at[1].Rate(at[0])
			}
			return err
		})
		c.Hold()
		if err == nil {
			err = s.Settles(ctx, quiet)
		}
		b.heap = append(b.heap, max(heap, liveHeap()))
		return errors.Join(err, c.Close())
	})
	return rate, err
}

// small is the rate with few rows waiting, until the last of them are claimed.
func (b *backlogShape) small(ctx context.Context) (float64, error) {
	warm, few := b.rig.rows(warmRows), b.rig.rows(backlogSmall)
	return shortRuns(func() (float64, error) {
		return b.rig.rate(ctx, b.template(warm+few), windowed(backlogWindow), warm, warm+few-min(few/2, backlogWindow))
	})
}
