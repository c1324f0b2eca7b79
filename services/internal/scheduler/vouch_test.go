package scheduler

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// madeUp names rows of sinks that nobody ever wrote to, each of a tenant of its own.
func madeUp(n int) (groups []hook.Group) {
	for i := range n {
		groups = append(groups, hook.Group{
			Partition: uint8(i % 16), Key: hook.SinkKey{Tenant: fmt.Sprint("nobody", i), SourceID: "demo", Type: "log"},
			Start: 1, Hooks: []hook.ID{hook.ID(uuid.New())},
		})
	}
	return groups
}

// I11: names of sinks that were never written to cost the core nothing that lasts, and hold nobody else up.
func TestI11_SinksThatAWriterMakesUpAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		r, w, hostile := newRunner(t), s.writer(), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		hostile.connect(n)
		_, kept := w.commit("demo", "acme", 3)
		hostile.notify(append(madeUp(wire.MaxNamed-10), kept...))
		synctest.Wait()
		require.Zero(t, n.metrics.read().Keys, "another writer's rows are not its to name, either")
		require.InDelta(t, wire.MaxNamed-9, testutil.ToFloat64(n.metrics.madeUp), 0)
		w.notify(kept)
		for range 3 {
			r.settle(r.leased(1)[0], delivered)
		}
		require.Zero(t, s.outstanding())

		hostile.sequence++
		named := wire.Committed{Sequence: hostile.sequence}
		for _, g := range madeUp(wire.MaxBacklogs) {
			named.Backlogs = append(named.Backlogs, wire.Backlog{Partition: g.Partition, Key: g.Key})
		}
		require.NoError(t, hostile.stream.Send(&dispatchv1.NotifyRequest{
			Message: &dispatchv1.NotifyRequest_Committed{Committed: named.Proto()},
		}))
		ack, err := hostile.stream.Recv()
		require.NoError(t, err)
		require.Equal(t, hostile.sequence, ack.GetAcknowledged())
		synctest.Wait()
		require.Zero(t, n.metrics.read().Keys)
	})
}

// Rows that exist do not wait for counters that cannot be read.
func TestWhatCannotBeVouchedForIsLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := local.OpenMem(zap.NewNop())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, inner.Close()) })
		healthy, err := store.Open(t.Context(), inner, store.Options{})
		require.NoError(t, err)
		var failing atomic.Int32
		port := faultkv.New(inner, func(c faultkv.Call) faultkv.Fault {
			if c.Op == faultkv.View && failing.Add(-1) >= 0 {
				return faultkv.Fault{Kind: faultkv.Unavailable}
			}
			return faultkv.Fault{}
		})
		st, err := store.Open(t.Context(), port, store.Options{})
		require.NoError(t, err)
		n := (&system{t: t, kv: port, store: st}).start(testConfig())
		n.leads(t)
		s := &system{t: t, kv: inner, store: healthy}
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		_, groups := w.commit("demo", "acme", 1)
		synctest.Wait()
		failing.Store(1)
		w.notify(groups)
		r.settle(r.leased(1)[0], delivered)
		require.Negative(t, failing.Load(), "the counters were asked for, in vain")
		require.Zero(t, testutil.ToFloat64(n.metrics.madeUp))
	})
}

// What a stream names beside sinks of a partition that is stuck waits for a moment, and all of it is let through.
func TestL14_SinksOfAStuckPartitionHoldTheirStreamUpForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hang := stuckSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		synctest.Wait()
		stuck := s.store.Partition(hook.DefaultTenant, 0)
		other := s.elsewhere(stuck)
		counters := func(c faultkv.Call) bool {
			return c.Op == faultkv.BatchGet && store.Class(c.Keys[0]) == "counter" && c.Keys[0][0] == stuck+1
		}
		_, groups := w.commit("demo", hook.DefaultTenant, 1)
		_, more := w.commit("demo", other, 1)
		hang.Store(&counters)
		began := time.Now()
		w.notify(append(groups, more...))
		r.leased(2)
		require.Equal(t, vouchTimeout, time.Since(began).Truncate(settleWait))
		hang.Store(nil)
	})
}
