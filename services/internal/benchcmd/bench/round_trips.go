package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/benchcmd/stage"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
	"ankusa.dev/services/internal/kv/tikv/tikvmock"
	"ankusa.dev/services/internal/store"
)

const (
	tripRows = 20_000
	tripWarm = 2000
	// tripWindow is the most rows claimed: the mock is slow to be filled with rows that are not counted.
	tripWindow = 1024
	// clusterVariable names PD's addresses of a cluster to use in place of the mock.
	clusterVariable = "ANKUSA_TEST_PD"
)

// roundTrips counts what a thousand rows ask of TiKV. The mock's speed says nothing, so that rates are printed for a
// cluster alone.
func roundTrips(ctx context.Context, g *Rig) (figure.Result, error) {
	b := &tripBench{rig: g, figures: map[string]any{}, rows: g.rows(tripRows), warm: g.rows(tripWarm)}
	var err error
	if pd := os.Getenv(clusterVariable); pd != "" {
		err = b.on(ctx, strings.Split(pd, ","))
	} else {
		err = b.onMock(ctx)
	}
	if err != nil {
		return figure.Result{}, err
	}
	return figure.Result{
		Value: b.calls, Unit: "calls through the store port per 1,000 rows", Against: "nothing: no bar",
		Limits: g.limits(map[string]any{
			"store": b.name, "rows": b.rows, "warm_rows": b.warm, "max_inflight": tripWindow, "tenants": 1, "repeat": 1,
		}),
		Figures: b.figures,
	}, nil
}

type tripBench struct {
	rig        *Rig
	name       string
	rows, warm int
	requests   *atomic.Int64 // to TiKV; nil where nobody counts them
	calls      float64
	figures    map[string]any
}

func (b *tripBench) onMock(ctx context.Context) error {
	b.name, b.requests = "tikv, the client's mock", new(atomic.Int64)
	mock, err := tikvmock.Open(tikvmock.Config{Hook: func(_ context.Context, _ tikvmock.Request, apply func()) bool {
		b.requests.Add(1)
		apply()
		return true
	}})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mock.Run(serving) }()
	err = b.on(ctx, []string{mock.Addr()})
	stop()
	return errors.Join(err, <-ended)
}

// on measures on a cluster, under a prefix of its own, which it leaves empty.
func (b *tripBench) on(ctx context.Context, pd []string) error {
	if b.name == "" {
		b.name = "tikv, a cluster"
	}
	c := tikv.Default()
	c.PD, c.GC.Enabled, c.KeyPrefix = pd, false, "bench-"+rand.Text()
	port, err := tikv.Open(ctx, c, zap.NewNop())
	if err != nil {
		return err
	}
	if err := b.fill(ctx, port); err != nil {
		return errors.Join(err, port.Close())
	}
	return onPort(ctx, port, windowed(tripWindow), func(ctx context.Context, s *stage.Stage) error {
		return errors.Join(b.measure(ctx, s), port.DropRange(ctx, kv.Range{}))
	})
}

func (b *tripBench) fill(ctx context.Context, port kv.Store) error {
	st, err := store.Open(ctx, port, store.Options{})
	if err != nil {
		return err
	}
	seeder, err := seed.New(ctx, st)
	if err != nil {
		return err
	}
	return errors.Join(addWaiting(ctx, seeder, 1, b.rows+tripWindow), seeder.Close(ctx))
}

func (b *tripBench) measure(ctx context.Context, s *stage.Stage) error {
	c, err := full(ctx, s, crew())
	if err != nil {
		return err
	}
	return errors.Join(b.count(ctx, s, c), c.Close())
}

func (b *tripBench) count(ctx context.Context, s *stage.Stage, c *stage.Crew) error {
	if err := c.Release(); err != nil {
		return err
	}
	begin, err := c.Settled(ctx, b.warm)
	if err != nil {
		return err
	}
	before, asked := s.Counts(), b.asked()
	end, err := c.Settled(ctx, b.rows)
	if err != nil {
		return err
	}
	done := s.Counts().Sub(before)
	per := func(n int) float64 { return float64(n) * 1000 / float64(end.Settled-begin.Settled) }
	byClass := map[string]any{}
	for class, n := range done.Calls {
		byClass[class] = figure.Round(per(n))
	}
	b.calls = per(done.All())
	b.figures["calls_per_1000_rows"], b.figures["calls_by_class_per_1000_rows"] = b.calls, byClass
	b.figures["transactions_per_1000_rows"], b.figures["keys_written_per_1000_rows"] = per(done.Transactions), per(done.Writes)
	if b.requests == nil {
		b.figures["rows_per_second"] = end.Rate(begin)
	} else {
		b.figures["requests_to_tikv_per_1000_rows"] = per(b.asked() - asked)
	}
	return nil
}

func (b *tripBench) asked() int {
	if b.requests == nil {
		return 0
	}
	return int(b.requests.Load())
}
