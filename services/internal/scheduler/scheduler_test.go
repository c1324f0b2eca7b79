package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

var delivered = hook.Outcome{Class: hook.Delivered, Status: 200, Duration: time.Millisecond}

func TestL17_AHookIsLeasedWhenItIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		began := time.Now()
		ids := w.accept("demo", hook.DefaultTenant, 1)
		a := r.leased(1)[0]
		require.Equal(t, ids[0], a.Row.Hook)
		require.EqualValues(t, 1, a.Number)
		require.Less(t, time.Since(began), 10*time.Millisecond, "a commit wakes, nothing polls")
		fetched, err := s.store.Fetch(t.Context(), []hook.Row{a.Row})
		require.NoError(t, err)
		require.Equal(t, "body of demo", string(fetched[0].Hook.Body))
		require.Equal(t, a.Lease.Epoch, fetched[0].Epoch)
		require.NotNil(t, fetched[0].Delivery)
		r.settle(a, delivered)
		require.Zero(t, s.outstanding())
		fetched, err = s.store.Fetch(t.Context(), []hook.Row{a.Row})
		require.NoError(t, err)
		require.Nil(t, fetched[0].Delivery)
		require.Nil(t, fetched[0].Hook, "the hook goes with its only delivery")
	})
}

func TestAFailureIsRetriedAndItsAttemptsStandInTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 2)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		w.accept("demo", "acme", 1)
		first := r.leased(2)
		r.settle(first[1], delivered)
		r.settle(first[0], hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503})
		again := r.leased(1)[0]
		require.EqualValues(t, 2, again.Number)
		require.Equal(t, first[0].Row.Key, again.Row.Key)
		require.NotEqual(t, first[0].Row.Version, again.Row.Version)
		fetched, err := s.store.Fetch(t.Context(), []hook.Row{again.Row})
		require.NoError(t, err)
		require.EqualValues(t, 1, fetched[0].Delivery.Attempts, "L23: the attempts stand in the row")
		require.NotNil(t, fetched[0].Hook, "the hook stays until its last delivery ended")
		r.settle(again, hook.Outcome{Class: hook.Permanent, Reason: "http: status 410", Status: 410})
		require.Zero(t, s.outstanding())
		dead, err := s.store.DeadLetters(t.Context(), store.DeadFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, dead.Entries, 1)
		require.EqualValues(t, 1, dead.Total)
		require.Equal(t, "http: status 410", dead.Entries[0].Reason)
		require.Equal(t, hook.ErrorPermanent, dead.Entries[0].Class)
		require.Equal(t, "text/plain", dead.Entries[0].ContentType)
	})
}

func TestWhatHappenedToAHookCanBeReadAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 2)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		ids, groups := w.commit("demo", "acme", 1)
		look := func() *adminv1.GetHookResponse {
			out, err := n.GetHook(t.Context(), &adminv1.GetHookRequest{Tenant: "acme", Id: ids[0].String()})
			require.NoError(t, err)
			require.Len(t, out.GetDeliveries(), 2)
			return out
		}
		require.Equal(t, "pending", look().GetState())
		require.Equal(t, "demo", look().GetSourceId())
		w.notify(groups)
		a := r.leased(2)
		r.settle(a[0], delivered)
		r.settle(a[1], hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503, Response: []byte("busy\xff")})
		out := look()
		require.Equal(t, "pending", out.GetState())
		second := out.GetDeliveries()[a[1].Row.Key.Index]
		require.Positive(t, second.GetNextDueAt())
		require.Equal(t, "transient", second.GetLastAttempts()[0].GetOutcome())
		require.Equal(t, "busy\uFFFD", second.GetLastAttempts()[0].GetResponse())
		r.settle(r.leased(1)[0], delivered)
		out = look()
		require.Equal(t, "delivered", out.GetState(), "the history outlives the hook")
		require.Len(t, out.GetDeliveries()[a[1].Row.Key.Index].GetLastAttempts(), 2)
		_, err := n.GetHook(t.Context(), &adminv1.GetHookRequest{Tenant: "other", Id: ids[0].String()})
		require.Equal(t, codes.NotFound, status.Code(err))
		_, err = n.GetHook(t.Context(), &adminv1.GetHookRequest{Tenant: "acme", Id: "x"})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

func TestL06_ALostRunnersRowsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 8, nil, nil)
		w.connect(n)
		w.accept("demo", hook.DefaultTenant, 1)
		r.leased(1)
		require.NoError(t, r.stream.CloseSend())
		other := newRunner(t)
		other.connect(n, 8, nil, nil)
		a := other.leased(1)[0]
		require.EqualValues(t, 1, a.Number, "a loss is no attempt")
		other.settle(a, delivered)
		require.Zero(t, s.outstanding())
	})
}

func TestANewLeaderClaimsWhatTheLastOneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		one := s.start(testConfig())
		one.leads(t)
		s.source(one, "demo", 1)
		w := s.writer()
		w.connect(one)
		w.accept("demo", hook.DefaultTenant, 300)
		one.stop()
		two := s.start(testConfig())
		two.leads(t)
		r := newRunner(t)
		r.connect(two, 1000, nil, nil)
		for range 300 {
			r.settle(r.leased(1)[0], delivered)
		}
		require.Zero(t, s.outstanding())
	})
}

func TestI5_AChangeOfLeaderAloneDeliversNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		one := s.start(testConfig())
		one.leads(t)
		two := s.start(testConfig())
		s.source(one, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(one, 8, nil, nil)
		w.connect(one)
		w.accept("demo", hook.DefaultTenant, 2)
		a := r.leased(2)
		one.stop()
		two.leads(t)
		r.connect(two, 8, []hook.Running{{Lease: a[0].Lease, Row: a[0].Row, Attempt: 1, Left: 20 * time.Second}},
			[]hook.Report{{Lease: a[1].Lease, Row: a[1].Row, Attempt: 1, Outcome: delivered}})
		for !r.settled[a[1].Lease] {
			r.hear()
		}
		r.settle(a[0], delivered)
		require.Zero(t, s.outstanding())
		require.Empty(t, r.attempts)
		require.Empty(t, r.dropped)
	})
}

func TestEveryFaultOfTheSettingsIsNamed(t *testing.T) {
	cfg := testConfig()
	require.NoError(t, cfg.Validate())
	cfg.Renew, cfg.Lease, cfg.Retention = 0, -time.Second, 0
	cfg.Core.Batch, cfg.Core.MaxInflight, cfg.Core.SinkConcurrency, cfg.Core.AttemptTimeout = 0, -1, -2, 0
	cfg.Core.LeaseMargin, cfg.Core.Grace, cfg.Core.Default.MaxInflight = -time.Second, -time.Second, 0
	cfg.Core.Breakers = core.Breakers{Failures: 3, Open: time.Second, MaxOpen: time.Millisecond}
	cfg.Core.Tenants = map[string]core.Limits{"acme": {MaxInflight: 1}}
	_, err := New(cfg, Deps{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	for _, fault := range []string{
		"scheduler.renew_ms must be positive, got 0", "scheduler.history_retention_hours must be positive, got 0",
		"scheduler.lease_ms must be at least twice scheduler.renew_ms, got -1000",
		"dispatch.batch must be at least 1, got 0", "dispatch.max_inflight must be at least 1, got -1",
		"dispatch.sink_concurrency must be at least 0, got -2", "dispatch.attempt_timeout_ms must be at least 1, got 0",
		"scheduler.lease_margin_ms must be at least 0, got -1000", "scheduler.runner_grace_ms must be at least 0, got -1000",
		"dispatch.tenants.default.max_inflight must be at least 1, got 0",
		"dispatch.breaker_max_open_ms must be at least 1000, got 1",
		"dispatch.tenants.acme.max_inflight_bytes must be at least 1, got 0",
	} {
		require.ErrorContains(t, err, fault)
	}
}
