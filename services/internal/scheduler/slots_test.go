package scheduler

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// TestARowOfALaneIsSettledAtOnce: the next member waits for it, so that a wait for company would set the lane's pace.
func TestARowOfALaneIsSettledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 50
		s, n := led(t, testConfig())
		s.orderedSource(n, "lane")
		w := s.writer()
		w.connect(n)
		w.accept("lane", hook.DefaultTenant, members)
		r := newRunner(t)
		r.connect(n, 8, nil, nil)
		began := time.Now()
		for range members - 1 {
			r.settle(r.leased(1)[0], delivered)
		}
		last := r.leased(1)[0]
		require.Less(t, time.Since(began), settleWait)
		r.settle(last, delivered)
		require.Zero(t, s.outstanding())
	})
}

// TestOutcomesWaitForCompany: those that come within settleWait of the first are one settle, and one that is urgent takes
// with it what waits.
func TestOutcomesWaitForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, port := countingSystem(t)
		cfg := testConfig()
		cfg.Exclusive = true // nothing but settles is written
		n := s.start(cfg)
		n.leads(t)
		s.orderedSource(n, "lane")
		s.source(n, "plain", 4)
		w := s.writer()
		w.connect(n)
		w.accept("plain", hook.DefaultTenant, 1)
		w.accept("lane", hook.DefaultTenant, 2)
		r := newRunner(t)
		r.connect(n, 16, nil, nil)
		var plain, ordered []wire.Attempt
		for _, a := range r.leased(5) {
			if a.Row.Ordered {
				ordered = append(ordered, a)
			} else {
				plain = append(plain, a)
			}
		}
		require.Len(t, plain, 4)

		began, before := time.Now(), port.updates.Load()
		r.report(plain[0], delivered)
		time.Sleep(settleWait / 2)
		r.report(plain[1], delivered)
		for !r.settled[plain[0].Lease] || !r.settled[plain[1].Lease] {
			r.hear()
		}
		require.InDelta(t, settleWait.Seconds(), time.Since(began).Seconds(), 0.0015)
		require.EqualValues(t, 1, port.updates.Load()-before)

		began, before = time.Now(), port.updates.Load()
		r.report(plain[2], delivered)
		synctest.Wait()
		require.Zero(t, port.updates.Load()-before)
		r.settle(ordered[0], delivered)
		for !r.settled[plain[2].Lease] {
			r.hear()
		}
		require.Less(t, time.Since(began), settleWait)
		require.EqualValues(t, 1, port.updates.Load()-before)
		r.settle(plain[3], delivered)
		r.settle(r.leased(1)[0], delivered)
	})
}

// refusal answers settles with its errors, and takes those after them.
type refusal struct {
	errs  []error
	calls int
}

func (r *refusal) Settle(context.Context, store.Slot, []hook.Settlement) (store.Settled, error) {
	r.calls++
	if r.calls > len(r.errs) {
		return store.Settled{Start: 1}, nil
	}
	return store.Settled{}, r.errs[r.calls-1]
}

// settleBeside settles a row of each of three tenants of one slot at once, and returns how many landed, whether the term
// was ended, and the log.
func settleBeside(t *testing.T, leader settler) (landed int, ended bool, log *observer.ObservedLogs) {
	watched, log := observer.New(zap.DebugLevel)
	ctx, cancel := context.WithCancel(t.Context())
	s := &slots{
		leader: leader, hub: newHub(1), log: zap.New(watched), page: 16, ctx: ctx, cancel: cancel, started: map[store.Slot]*slot{},
		landed: func(rows []hook.Settlement, _ hook.Timestamp) { landed += len(rows) },
		end:    func(error) { ended = true },
	}
	var e core.Effects
	slot := store.SlotOf(0, "t")
	for i := 0; len(e.Urgent) < 3; i++ {
		if tenant := fmt.Sprint("t", i); store.SlotOf(0, tenant) == slot {
			e.Urgent = append(e.Urgent, hook.Settlement{Delivery: hook.Delivery{Row: hook.Row{Key: hook.SinkKey{Tenant: tenant}}}})
		}
	}
	require.NoError(t, s.submit(1, &e))
	synctest.Wait()
	s.close()
	return landed, ended, log
}

func TestADeposedLeaderTriesNoOutcomeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := &refusal{errs: []error{store.ErrDeposed}}
		landed, ended, log := settleBeside(t, leader)
		require.Equal(t, 1, leader.calls)
		require.Zero(t, landed)
		require.True(t, ended)
		require.Zero(t, log.Len())
	})
}

// TestASettleThatFailsIsLoggedOnce: the tenants are tried one by one, and nothing else would tell.
func TestASettleThatFailsIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := &refusal{errs: []error{kv.ErrUnavailable}}
		landed, ended, log := settleBeside(t, leader)
		require.Equal(t, 4, leader.calls)
		require.Equal(t, 3, landed)
		require.False(t, ended)
		require.Equal(t, 1, log.Len())
	})
}
