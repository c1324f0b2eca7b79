package sinkrunner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
)

func isGoodbye(m *dispatchv1.LeaseRequest) bool { return m.GetGoodbye() != nil }

func TestAStopLetsAttemptsEndAndWaitsForTheirAcknowledgement(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(context.Context, *sink.Delivery) hook.Outcome {
			time.Sleep(10 * time.Second)
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		f.lease(attempt(1))
		synctest.Wait()
		began := time.Now()
		h.stop()
		require.True(t, isGoodbye(f.next()))
		f.lease(attempt(2)) // crossed the goodbye
		refused := f.reports(1)[0]
		require.Equal(t, hook.NotStarted, refused.Outcome.Class)
		f.settle(refused.Lease)
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		require.Equal(t, 10*time.Second, time.Since(began))
		time.Sleep(3 * time.Second)
		require.Empty(t, h.ended, "the outcome is not acknowledged")
		f.settle(attempt(1).Lease)
		synctest.Wait()
		require.Len(t, h.ended, 1)
		require.Equal(t, 13*time.Second, time.Since(began))
	})
}

func TestAStopCutsAttemptsAtItsDeadline(t *testing.T) {
	inBubble(t, func(c *Config) { c.Drain = 5 * time.Second }, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		f.lease(attempt(1))
		synctest.Wait()
		began := time.Now()
		h.stop()
		require.True(t, isGoodbye(f.next()))
		o := f.reports(1)[0].Outcome
		require.Equal(t, hook.Transient, o.Class)
		require.Equal(t, "runner stopped", o.Reason)
		require.Equal(t, 5*time.Second, time.Since(began))
		f.settle(attempt(1).Lease)
		synctest.Wait()
		require.Len(t, h.ended, 1)
	})
}

func TestAStopReportsToTheNextLeaderWhenTheFirstIsGone(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(context.Context, *sink.Delivery) hook.Outcome {
			time.Sleep(10 * time.Second)
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		f.lease(attempt(1))
		synctest.Wait()
		h.stop()
		require.True(t, isGoodbye(f.next()))
		f.finish(errGone)
		f = h.joined(1) // of the same epoch: nothing else is new
		require.Zero(t, f.hello.Credit.Slots)
		require.True(t, isGoodbye(f.next()))
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		f.settle(attempt(1).Lease)
	})
}

func TestAStopWithoutALeaderIsBounded(t *testing.T) {
	inBubble(t, func(c *Config) { c.Acknowledge = 5 * time.Second }, func(h *harness) {
		f := h.joined(1)
		f.lease(attempt(1))
		f.reports(1)
		h.leader.mu.Lock()
		h.leader.refuse = errGone
		h.leader.mu.Unlock()
		f.finish(errGone)
		began := time.Now()
		h.stop()
		for len(h.ended) == 0 && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(began), 5*time.Second+partingTime+time.Second)
		require.Equal(t, 1, h.logs.FilterMessage("outcomes left unacknowledged").Len())
	})
}

func TestAnIdleRunnerStopsAtOnceWithAGoodbye(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		began := time.Now()
		h.stop()
		synctest.Wait()
		require.Len(t, h.ended, 1)
		require.Zero(t, time.Since(began))
		require.True(t, isGoodbye(f.next()))
	})
}

func TestALeaderThatDoesNotCloseItsSideDoesNotHoldAStop(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.stream() // welcomes nobody
		h.stop()
		for len(h.ended) == 0 {
			time.Sleep(time.Second)
		}
		require.Empty(t, f.got)
	})
}

func TestI11_AnAttemptBeyondTheSlotsIsNotStarted(t *testing.T) {
	inBubble(t, func(c *Config) { c.Slots = 2 }, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		f.lease(attempt(1), attempt(2), attempt(3))
		r := f.reports(1)[0]
		require.EqualValues(t, 3, r.Lease.ID)
		require.Equal(t, hook.NotStarted, r.Outcome.Class)
		f.settle(r.Lease)
		for _, r := range f.reports(2) {
			f.settle(r.Lease)
		}
	})
}

func TestI11_ARunnerWhoseOutcomesAreNotAcknowledgedTakesNoMore(t *testing.T) {
	const slots = 2
	inBubble(t, func(c *Config) { c.Slots = slots }, func(h *harness) {
		f := h.joined(1)
		n := uint64(0)
		lease := func() {
			n++
			f.lease(attempt(n))
		}
		for range behind(slots) {
			lease()
			f.reports(1)
		}
		f.quiet()
		lease()
		var credit *dispatchv1.Credit
		for reported := 0; credit == nil || reported == 0; {
			m := f.next()
			reported += len(m.GetOutcomes().GetOutcomes())
			if m.GetCredit() != nil {
				credit = m.GetCredit()
			}
		}
		require.Zero(t, credit.Slots)
		f.settle(attempt(1).Lease, attempt(2).Lease)
		require.EqualValues(t, slots, f.next().GetCredit().GetSlots())

		// A leader that does not heed the credit is left at last, and the next one hears of everything.
		for int(n) <= overrun(slots)+10 {
			lease()
			synctest.Wait()
			if len(f.end) > 0 || len(h.leader.streams) > 0 || f.stream.Context().Err() != nil {
				break
			}
		}
		again := h.joined(1)
		require.Greater(t, len(again.hello.Unacknowledged), overrun(slots)-slots)
		require.Zero(t, again.hello.Credit.Slots)
		require.Empty(t, again.hello.Unacknowledged[0].Outcome.Response)
		var all []hook.Lease
		for _, r := range again.hello.Unacknowledged {
			all = append(all, r.Lease)
		}
		again.settle(all...)
		require.EqualValues(t, slots, again.next().GetCredit().GetSlots())
	})
}

func TestAStopWaitsForAMessageThatWasHalfTaken(t *testing.T) {
	inBubble(t, func(c *Config) { c.Drain = 0 }, func(h *harness) {
		f := h.joined(1)
		half := attempt(1)
		l, err := h.runner.book.admit(&half)
		require.NoError(t, err)
		h.stop()
		require.True(t, isGoodbye(f.next()))
		time.Sleep(10 * time.Second)
		require.False(t, h.runner.workers.Closed(), "an attempt was admitted that has not begun")
		h.runner.start([]*lease{l})
		o := f.reports(1)[0].Outcome
		require.Equal(t, hook.NotStarted, o.Class)
		require.Equal(t, "runner stopping", o.Reason)
		require.Zero(t, h.sink.count())
		f.settle(half.Lease)
		synctest.Wait()
		require.True(t, h.runner.workers.Closed())
		require.Len(t, h.ended, 1)
	})
}
