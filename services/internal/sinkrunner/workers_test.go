package sinkrunner

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/wire"
)

func (w *workers) resting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}

func TestWorkersAreKeptForTheNextAttemptsAndNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		release := make(chan struct{})
		w := newWorkers(2, func(*lease, found) {
			running.Add(1)
			<-release
			running.Add(-1)
		})
		for range 3 { // more than are kept run all the same
			for range 5 {
				w.do(nil, found{})
			}
			synctest.Wait()
			require.EqualValues(t, 5, running.Load())
			for range 5 {
				release <- struct{}{}
			}
			synctest.Wait()
			require.Zero(t, running.Load())
			require.Equal(t, 2, w.resting())
		}
		w.close()
	})
}

func TestAWorkerThatHasNothingToDoForLongEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(2, func(*lease, found) {})
		require.True(t, w.do(nil, found{}))
		synctest.Wait()
		time.Sleep(idleTime - time.Second)
		require.True(t, w.do(nil, found{}))
		time.Sleep(idleTime - time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.resting(), "its time begins anew with each attempt")
		time.Sleep(time.Second)
		w.all.Wait() // nobody has closed them
		require.Zero(t, w.resting())
		w.close()
	})
}

func TestWorkersThatAreClosedTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		w := newWorkers(2, func(*lease, found) { ran++ })
		require.True(t, w.do(nil, found{}))
		w.close()
		require.False(t, w.do(nil, found{}))
		require.Equal(t, 1, ran)
	})
}

func TestALeaseEndsAtItsDeadlineAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(&wire.Attempt{Timeout: 3 * time.Second, Left: 2 * time.Second})
		require.Equal(t, 2*time.Second, time.Until(l.deadline()))
		<-l.ctx.Done()
		require.Zero(t, time.Until(l.deadline()))
		require.ErrorIs(t, context.Cause(l.ctx), errTimeout)
		l.close()

		l = newLease(&wire.Attempt{Timeout: time.Second, Left: time.Second})
		l.cancel(errCut)
		require.ErrorIs(t, l.ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(l.ctx), errCut)
		l.close()
	})
}

// TestOutcomesOfOneMomentGoTogether: each message costs the leader a round of its loop.
func TestOutcomesOfOneMomentGoTogether(t *testing.T) {
	const n = 64
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(context.Context, *sink.Delivery) hook.Outcome {
			time.Sleep(time.Second)
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		list := make([]wire.Attempt, n)
		for i := range list {
			list[i] = attempt(uint64(i) + 1)
		}
		f.lease(list...)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Less(t, len(f.got), n/2)
		for _, r := range f.reports(n) {
			f.settle(r.Lease)
		}
	})
}
