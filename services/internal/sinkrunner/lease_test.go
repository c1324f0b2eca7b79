package sinkrunner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/wire"
)

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
