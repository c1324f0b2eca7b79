package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// requireRefusal checks the kind of an error and its reason.
func requireRefusal(t *testing.T, err error, code codes.Code, reason string, what ...any) {
	t.Helper()
	require.Equal(t, code, status.Code(err), what...)
	got, _, _ := wire.Reason(err)
	require.Equal(t, reason, got, what...)
}

var unavailable = hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503}

// deadReasons counts the dead letters by their reasons.
func (s *system) deadReasons() map[string]int {
	page, err := s.store.DeadLetters(s.t.Context(), store.DeadFilter{Limit: 1000})
	require.NoError(s.t, err)
	reasons := map[string]int{}
	for _, e := range page.Entries {
		reasons[e.Reason]++
	}
	return reasons
}

func (s *system) deadTotal() int64 {
	page, err := s.store.DeadLetters(s.t.Context(), store.DeadFilter{})
	require.NoError(s.t, err)
	return page.Total
}

func deadLetterSource(t *testing.T, n *node, sourceID string) int64 {
	out, err := n.DeadLetterSource(t.Context(), &adminv1.DeadLetterSourceRequest{SourceId: sourceID})
	require.NoError(t, err)
	return out.GetDeadLettered()
}

func TestDeadLetterSourceEndsWhatIsPendingAndLeavesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 2)
		s.source(n, "other", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 1, nil, nil)
		w.connect(n)
		w.accept("demo", "acme", 30)
		running := r.leased(1)[0]
		w.accept("other", "acme", 1)
		w.commit("demo", "globex", 10) // nobody is told of these
		require.EqualValues(t, 79, deadLetterSource(t, n, "demo"))
		require.Equal(t, map[string]int{"source_gone": 79}, s.deadReasons())
		require.EqualValues(t, 2, s.outstanding())
		r.settle(running, unavailable)
		require.EqualValues(t, 2, s.outstanding(), "the source is still there: its row is tried again")
		require.Zero(t, deadLetterSource(t, n, "unknown"))
	})
}

func TestDeadLetterSourceEndsRowsBehindALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.orderedSource(n, "demo")
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		for range 3 {
			w.accept("demo", "acme", 200)
		}
		head := r.leased(1)[0]
		require.EqualValues(t, 599, deadLetterSource(t, n, "demo"), "all but the head, which runs")
		r.settle(head, unavailable)
		require.EqualValues(t, 1, deadLetterSource(t, n, "demo"), "the head waits for another attempt")
		require.Zero(t, s.outstanding())
		w.accept("demo", "acme", 1)
		r.settle(r.leased(1)[0], delivered)
		require.Zero(t, s.outstanding())
	})
}

func TestTheLeaderAloneServesThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		s.start(testConfig()).leads(t)
		standby := s.start(testConfig())
		time.Sleep(time.Second)
		calls := map[string]func() error{
			"dead letter": func() error {
				_, err := standby.DeadLetterSource(t.Context(), &adminv1.DeadLetterSourceRequest{SourceId: "demo"})
				return err
			},
			"pressure": func() error { _, err := standby.Pressure(t.Context(), nil); return err },
			"tick":     func() error { _, err := standby.Tick(t.Context(), nil); return err },
			"delete": func() error {
				_, err := standby.DeleteSource(t.Context(), &adminv1.DeleteSourceRequest{
					Tenant: hook.DefaultTenant, Name: "demo", Deliveries: "dead_letter",
				})
				return err
			},
		}
		for name, call := range calls {
			requireRefusal(t, call(), codes.Unavailable, "dispatch_unavailable", name)
		}
	})
}

func TestAPipelineCallNamesTheFieldThatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := led(t, testConfig())
		for _, id := range []string{"", "..", "a.b.c", "a b"} {
			_, err := n.DeadLetterSource(t.Context(), &adminv1.DeadLetterSourceRequest{SourceId: id})
			requireRefusal(t, err, codes.InvalidArgument, "invalid_filter", id)
		}
		_, err := n.DeleteSource(t.Context(), &adminv1.DeleteSourceRequest{Tenant: "default", Name: "demo", Deliveries: "keep"})
		requireRefusal(t, err, codes.InvalidArgument, "invalid_filter", "deliveries")
	})
}

func TestACallThatTheTermOutlivesEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		w := s.writer()
		w.connect(n)
		_, groups := w.commit("demo", "acme", 1)
		w.notify(groups) // no runner takes it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := adminv1.NewPipelineServiceClient(n.conn).Tick(ctx, &adminv1.TickRequest{})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		resting, err := ask(t.Context(), n.term.Load(), func(*core.Core, hook.Timestamp) int { return len(n.term.Load().resting) })
		require.NoError(t, err)
		require.Zero(t, resting)
	})
}

func TestTheEndOfATermEndsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		w := s.writer()
		w.connect(n)
		w.accept("demo", "acme", 1)
		ended := make(chan error, 1)
		go func() {
			_, err := n.Tick(t.Context(), nil)
			ended <- err
		}()
		synctest.Wait()
		n.stop()
		requireRefusal(t, <-ended, codes.Unavailable, "dispatch_unavailable")
	})
}

func TestTickReturnsWhenWhatWasCommittedIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		w.commit("demo", "acme", 3) // acknowledged, and nobody has named them yet
		settled := make(chan int64, 1)
		tick := func() {
			out, err := n.Tick(t.Context(), nil)
			require.NoError(t, err)
			settled <- out.GetSettled()
		}
		go tick()
		attempts := r.leased(1)
		synctest.Wait()
		require.Empty(t, settled)
		r.settle(attempts[0], delivered)
		attempts = r.leased(2)
		r.settle(attempts[0], hook.Outcome{Class: hook.Permanent, Reason: "http: status 410"})
		synctest.Wait()
		require.Empty(t, settled)
		r.settle(attempts[1], unavailable)
		require.EqualValues(t, 2, <-settled, "the third waits for another attempt")
		go tick()
		require.Zero(t, <-settled)
	})
}

func TestPressureComesFromTheLeadersMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		cfg := testConfig()
		cfg.Core.MaxInflight = 4
		n := s.start(cfg)
		n.leads(t)
		s.source(n, "demo", 1)
		w := s.writer()
		w.connect(n)
		pressure := func() *adminv1.PressureResponse {
			out, err := n.Pressure(t.Context(), nil)
			require.NoError(t, err)
			return out
		}
		require.Zero(t, pressure().GetLagMs())
		w.accept("demo", "acme", 10)
		time.Sleep(3 * time.Second)
		require.InDelta(t, 3000, pressure().GetLagMs(), 100)
		require.True(t, pressure().GetWindowFull())
		deadLetterSource(t, n, "other")
		require.True(t, pressure().GetWindowFull(), "of a source that has nothing pending")
	})
}

func TestADeletionTakesPendingDeliveriesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 2, nil, nil)
		w.connect(n)
		w.accept("demo", "acme", 20)
		running := r.leased(1)[0]
		remove := func(deliveries string) error {
			_, err := n.DeleteSource(t.Context(), &adminv1.DeleteSourceRequest{
				Tenant: hook.DefaultTenant, Name: "demo", Deliveries: deliveries,
			})
			return err
		}
		requireRefusal(t, remove(""), codes.FailedPrecondition, "source_has_deliveries")
		began := time.Now()
		require.NoError(t, remove("dead_letter"))
		require.InDelta(t, 6, time.Since(began).Seconds(), 1)
		require.Equal(t, map[string]int{"source_gone": 19}, s.deadReasons())
		_, err := s.store.Source(t.Context(), hook.DefaultTenant, "demo")
		require.ErrorIs(t, err, store.ErrSourceNotFound)
		requireRefusal(t, remove("dead_letter"), codes.NotFound, "source_not_found")

		s.source(n, "demo", 1)
		w.accept("demo", "acme", 1)
		r.settle(running, unavailable)
		again := r.leased(1)[0]
		require.NotEqual(t, running.Row.Hook, again.Row.Hook, "a later source of the name inherits nothing")
		r.settle(again, delivered)
		_, err = n.Tick(t.Context(), nil)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Zero(t, s.outstanding())
		require.Equal(t, map[string]int{"source_gone": 20}, s.deadReasons(), "one that ran and failed")
	})
}

// A leader that ends within a deletion leaves a source that another deletion finishes.
func TestI2_ADeletionThatIsCutOffIsFinishedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowSystem(t, 2*time.Millisecond) // else all of it ends within one moment
		first := s.start(testConfig())
		first.leads(t)
		s.source(first, "demo", 1)
		w := s.writer()
		w.connect(first)
		w.accept("demo", "acme", 3000)
		removed := make(chan error, 1)
		go func() {
			_, err := first.DeleteSource(t.Context(), &adminv1.DeleteSourceRequest{
				Tenant: hook.DefaultTenant, Name: "demo", Deliveries: "dead_letter",
			})
			removed <- err
		}()
		time.Sleep(store.CommitBound)
		for s.deadTotal() == 0 {
			time.Sleep(time.Millisecond)
		}
		first.stop()
		requireRefusal(t, <-removed, codes.Unavailable, "dispatch_unavailable")
		require.EqualValues(t, 3000, s.deadTotal()+s.outstanding())
		require.Positive(t, s.outstanding(), "cut off in the middle")

		second := s.start(testConfig())
		second.leads(t)
		w = s.writer()
		w.connect(second)
		_, groups := w.commit("demo", "acme", 2) // the source takes hooks again
		w.notify(groups)
		_, err := second.DeleteSource(t.Context(), &adminv1.DeleteSourceRequest{
			Tenant: hook.DefaultTenant, Name: "demo", Deliveries: "dead_letter",
		})
		require.NoError(t, err)
		require.Zero(t, s.outstanding())
		require.EqualValues(t, 3002, s.deadTotal())
	})
}

func TestASourceThatIsCreatedAnewIsNotTakenForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		other := s.start(testConfig())
		old := s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 2, nil, nil)
		w.connect(n)
		w.accept("demo", "acme", 1)
		r.settle(r.leased(1)[0], delivered) // the leader remembers the source for a second
		src, err := s.store.Source(t.Context(), hook.DefaultTenant, old.GetName())
		require.NoError(t, err)
		require.NoError(t, s.store.CloseSource(t.Context(), hook.DefaultTenant, "demo"))
		require.NoError(t, s.store.RemoveSource(t.Context(), hook.DefaultTenant, "demo", src.Incarnation))
		s.source(other, "demo", 1)
		w.accept("demo", "acme", 1)
		for s.outstanding() > 0 && len(r.attempts) == 0 {
			r.hear()
		}
		require.Empty(t, s.deadReasons())
		r.settle(r.leased(1)[0], delivered)
	})
}
