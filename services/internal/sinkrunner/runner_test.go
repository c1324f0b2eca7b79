package sinkrunner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
)

var (
	_ Store   = (*store.Store)(nil)
	_ Sources = (*sourcecache.Cache[*source.Source])(nil)
)

func TestAnAttemptIsDeliveredReportedAndForgottenOnceSettled(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.stream()
		require.Equal(t, []string{"log"}, f.hello.SinkTypes)
		require.EqualValues(t, 256, f.hello.Credit.Slots)
		require.ErrorIs(t, h.runner.Ready(t.Context()), ErrNotConnected)
		f.welcome(1)
		a := attempt(1)
		a.ReplayID = "job"
		f.lease(a)
		got := f.reports(1)[0]
		require.Equal(t, hook.Delivered, got.Outcome.Class)
		require.EqualValues(t, 204, got.Outcome.Status)
		require.Equal(t, a.Lease, got.Lease)
		require.Equal(t, a.Row, got.Row)
		require.EqualValues(t, 1, got.Attempt)
		require.Equal(t, "job", h.sink.delivered[0].ReplayID)
		require.NoError(t, h.runner.Ready(t.Context()))

		f.settle(a.Lease)
		synctest.Wait()
		f.finish(errGone)
		again := h.joined(1)
		require.Empty(t, again.hello.Unacknowledged)
		require.Empty(t, again.hello.Running)
		require.Equal(t, f.hello.Runner, again.hello.Runner)
	})
}

func TestL08_AnOutcomeIsReportedAgainUntilItIsAcknowledged(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		for n := uint64(1); n <= 3; n++ {
			f.lease(attempt(n))
			f.reports(1)
		}
		for range 3 {
			f.finish(errGone)
			f = h.joined(1)
			require.Len(t, f.hello.Unacknowledged, 3)
			for i, r := range f.hello.Unacknowledged {
				require.EqualValues(t, i+1, r.Lease.ID, "in the order of the ends")
				require.Equal(t, hook.Delivered, r.Outcome.Class)
			}
			f.quiet()
		}
		f.settle(hook.Lease{Epoch: 1, ID: 2})
		f.drop(hook.Lease{Epoch: 1, ID: 1})
		synctest.Wait()
		f.finish(errGone)
		f = h.joined(2)
		require.Len(t, f.hello.Unacknowledged, 1)
		require.EqualValues(t, 1, f.hello.HighestEpoch)
		f.settle(hook.Lease{Epoch: 1, ID: 3})
	})
}

func TestL06_AnAttemptOutlivesItsStream(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		release := make(chan struct{})
		h.sink.deliver = func(context.Context, *sink.Delivery) hook.Outcome {
			<-release
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		f.lease(attempt(1))
		time.Sleep(10 * time.Second)
		f.finish(errGone)
		f = h.joined(2)
		require.Len(t, f.hello.Running, 1)
		running := f.hello.Running[0]
		require.Equal(t, attempt(1).Lease, running.Lease)
		require.Equal(t, attempt(1).Row, running.Row)
		require.InDelta(t, 20*time.Second, running.Left, float64(time.Second))
		close(release)
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		f.settle(attempt(1).Lease)
		require.Equal(t, 1, h.sink.count())
	})
}

func TestL02_L03_TheRunnerRedialsForEver(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.joined(1).finish(errGone)
		h.leader.mu.Lock()
		h.leader.refuse = errGone
		h.leader.mu.Unlock()
		time.Sleep(time.Hour)
		h.leader.mu.Lock()
		refused := h.leader.refused
		h.leader.refuse = nil
		h.leader.mu.Unlock()
		require.Greater(t, refused, 1800-1, "at most 2 s apart")
		require.Less(t, refused, 3600+10, "and at least 1 s")
		f := h.joined(1)
		f.lease(attempt(1))
		f.reports(1)
		f.settle(attempt(1).Lease)
	})
}

func TestL20_PausesGrowAndAreDrawnAtRandom(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		var b backoff
		for n := range 40 {
			bound := lastPause
			if n < 6 {
				bound = min(firstPause<<n, lastPause)
			}
			pause := b.next()
			require.GreaterOrEqual(t, pause, bound/2)
			require.Less(t, pause, bound)
			seen[pause] = true
		}
	}
	require.Greater(t, len(seen), 100)
}

func TestASilentLeaderIsLeft(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.stream() // no welcome
		h.joined(1)
	})
}

// TestI4_ALeaderThatFallsSilentIsLeft: a stopped process keeps its connections.
func TestI4_ALeaderThatFallsSilentIsLeft(t *testing.T) {
	brief := func(c *Config) { c.Silence = 5 * time.Second }
	inBubble(t, brief, func(h *harness) {
		f := h.joined(1)
		for range 10 { // with nothing to tell, it tells that
			time.Sleep(4 * time.Second)
			f.settle()
		}
		require.Empty(t, h.leader.streams)
		began := time.Now()
		h.joined(2)
		require.Less(t, time.Since(began), 6*time.Second)
	})
}

func TestALeaderOfTheSameProcessMaySayNothing(t *testing.T) {
	inBubble(t, func(c *Config) { c.Silence = 0 }, func(h *harness) {
		f := h.joined(1)
		time.Sleep(time.Hour)
		f.lease(attempt(1))
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		f.settle(attempt(1).Lease)
		require.Empty(t, h.leader.streams)
	})
}

func TestI4_ALeaderOfALowerEpochIsRefused(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.joined(7).finish(errGone)
		f := h.joined(6)
		require.EqualValues(t, 7, f.hello.HighestEpoch)
		require.Equal(t, 1, h.logs.FilterMessage("leader found").Len(), "it was not taken for a leader even for a moment")
		require.ErrorIs(t, h.runner.Ready(t.Context()), ErrNotConnected)
		h.joined(7)
		require.NoError(t, h.runner.Ready(t.Context()))
	})
}

func TestI4_ALeaseOfALowerEpochThanTheHighestSeenIsNotAdmitted(t *testing.T) {
	b := newBook(2)
	b.observe(2)
	a := attempt(1)
	l, err := b.admit(&a)
	require.NoError(t, err)
	require.Nil(t, l)
	a.Lease.Epoch = 2
	l, err = b.admit(&a)
	require.NoError(t, err)
	require.True(t, b.finish(l, hook.Outcome{Class: hook.Delivered}))
}

func TestI4_AnAttemptOfADeposedLeaderIsNotDelivered(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.store.epoch = 2
		f := h.joined(1)
		f.lease(attempt(1))
		f = h.stream() // the deposed leader is left
		require.EqualValues(t, 2, f.hello.HighestEpoch)
		require.Empty(t, f.hello.Running)
		require.Empty(t, f.hello.Unacknowledged)
		require.Zero(t, h.sink.count())
		f.welcome(2)
	})
}

func TestL16_AnAttemptEndsWithItsTime(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		began := time.Now()
		f.lease(attempt(1))
		o := f.reports(1)[0].Outcome
		require.Equal(t, hook.TimedOut, o.Class)
		require.Equal(t, "attempt_timeout 30000ms", o.Reason)
		require.Equal(t, 30*time.Second, time.Since(began))
		require.Equal(t, 30*time.Second, o.Duration)
		f.settle(attempt(1).Lease)
	})
}

func TestAnAttemptOutlivesItsLeaderAndNotItsLease(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		began := time.Now()
		short := attempt(2)
		short.Left = 20 * time.Second
		f.lease(attempt(1), short)
		synctest.Wait()
		f.finish(errGone)
		f = h.stream() // no leader welcomes it
		time.Sleep(time.Until(began.Add(20*time.Second - time.Millisecond)))
		require.Equal(t, 2, h.sink.count())
		running, ended := h.runner.book.counts()
		require.Equal(t, []int{2, 0}, []int{running, ended}, "nobody but a leader takes a lease back")
		time.Sleep(2 * time.Millisecond)
		running, ended = h.runner.book.counts()
		require.Equal(t, []int{1, 1}, []int{running, ended})
		time.Sleep(10 * time.Second)
		running, ended = h.runner.book.counts()
		require.Equal(t, []int{0, 2}, []int{running, ended})
		f.finish(errGone)
		f = h.joined(2)
		require.Len(t, f.hello.Unacknowledged, 2)
		require.Equal(t, "attempt_timeout 20000ms", f.hello.Unacknowledged[0].Outcome.Reason)
		require.Equal(t, "attempt_timeout 30000ms", f.hello.Unacknowledged[1].Outcome.Reason)
	})
}

func TestASuccessAtTheLastMomentIsASuccess(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(ctx context.Context, _ *sink.Delivery) hook.Outcome {
			<-ctx.Done()
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		f.lease(attempt(1))
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		f.settle(attempt(1).Lease)
	})
}

func TestL14_AHangingAttemptHoldsNobodyElse(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(ctx context.Context, d *sink.Delivery) hook.Outcome {
			if d.Hook.ID == attempt(1).Row.Hook {
				return hang(ctx, d)
			}
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		began := time.Now()
		f.lease(attempt(1), attempt(2), attempt(3))
		for _, r := range f.reports(2) {
			require.Equal(t, hook.Delivered, r.Outcome.Class)
			f.settle(r.Lease)
		}
		require.Zero(t, time.Since(began))
		f.settle(f.reports(1)[0].Lease)
	})
}

func TestADroppedLeaseIsCancelledAndForgotten(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		f.lease(attempt(1), attempt(2))
		synctest.Wait()
		f.drop(attempt(1).Lease)
		f.quiet()
		running, unacknowledged := h.runner.book.counts()
		require.Equal(t, []int{1, 0}, []int{running, unacknowledged})
		f.settle(f.reports(1)[0].Lease)
	})
}

func TestALeaseThatIsKnownIsNotRunTwice(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		f.lease(attempt(1), attempt(1))
		f.lease(attempt(1))
		f.reports(1)
		f.lease(attempt(1))
		f.quiet()
		require.Equal(t, 1, h.sink.count())
		f.settle(attempt(1).Lease)
	})
}

func TestAPanicInASinkIsAFailedAttemptAndNothingMore(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.sink.deliver = func(_ context.Context, d *sink.Delivery) hook.Outcome {
			if d.Hook.ID == attempt(1).Row.Hook {
				panic(string(d.Hook.Body))
			}
			return hook.Outcome{Class: hook.Delivered}
		}
		f := h.joined(1)
		f.lease(attempt(1), attempt(2))
		classes := map[uint64]hook.Outcome{}
		for _, r := range f.reports(2) {
			classes[r.Lease.ID] = r.Outcome
			f.settle(r.Lease)
		}
		require.Equal(t, hook.Transient, classes[1].Class)
		require.Equal(t, "panic in the sink", classes[1].Reason)
		require.Equal(t, hook.Delivered, classes[2].Class)
	})
}

func TestMalformedMessagesEndTheStreamAndNothingElse(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		bad := attempt(1)
		bad.Row.Partition = 255
		f.lease(bad)
		f = h.joined(1)
		other := attempt(2)
		other.Lease.Epoch = 9
		f.lease(attempt(1), other)
		f = h.joined(1)
		f.lease(attempt(3))
		for range 1 {
			f.reports(1)
		}
		f.settle(attempt(1).Lease, attempt(3).Lease)
		require.Equal(t, 2, h.sink.count())
	})
}

func TestL48_EachAttemptIsOneEventWithoutPayload(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		f.lease(attempt(1))
		f.reports(1)
		f.settle(attempt(1).Lease)
		synctest.Wait()
		events := h.logs.FilterMessage("attempt ended").All()
		require.Len(t, events, 1)
		fields := events[0].ContextMap()
		require.Equal(t, "delivered", fields["outcome"])
		require.Equal(t, attempt(1).Row.Hook.String(), fields["hook_id"])
		require.Equal(t, "acme.stripe", fields["source_id"])
	})
}

func TestAConfigNamesEveryFault(t *testing.T) {
	require.NoError(t, Default().Validate())
	err := Config{Slots: 65537, Drain: -1, Acknowledge: time.Hour, Read: 1}.Validate()
	for _, field := range []string{"name", "slots", "drain", "acknowledge", "read"} {
		require.ErrorContains(t, err, "runner."+field+" must be ")
	}
	_, err = New(Config{}, Deps{})
	require.Error(t, err)
}
