package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/store"
)

// counting counts the transactions that may write.
type counting struct {
	kv.Store
	updates atomic.Int64
}

func (c *counting) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	c.updates.Add(1)
	return c.Store.Update(ctx, o, fn)
}

func countingSystem(t *testing.T) (*system, *counting) {
	s := newSystem(t)
	port := &counting{Store: s.kv}
	var err error
	s.store, err = store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	return s, port
}

// A store of one process has nobody who could take the lease, and a runner of the same process cannot miss its leader.
func TestAnExclusiveLeaderIsSilentAndWritesNothingWhileItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, port := countingSystem(t)
		cfg := testConfig()
		cfg.Exclusive = true
		n := s.start(cfg)
		n.leads(t)
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		synctest.Wait()
		before := port.updates.Load()
		time.Sleep(sweepPeriod - time.Minute)
		synctest.Wait()
		require.Zero(t, port.updates.Load()-before)
		w.accept("demo", hook.DefaultTenant, 1)
		r.hear()
		require.Len(t, r.attempts, 1, "nothing else was said in all that time")
		require.Equal(t, r.epoch, r.attempts[0].Lease.Epoch, "it has led all the time")
		r.settle(r.attempts[0], delivered)
	})
}
