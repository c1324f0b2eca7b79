package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// concurrency is the configuration of the tests with another cap on attempts at once.
func concurrency(n int) Config {
	cfg := testConfig()
	cfg.Core.Concurrency, cfg.Core.SinkConcurrency, cfg.Core.Default.Concurrency = n, 100, 100
	return cfg
}

func TestALeaderHeedsOtherLimitsAtOnceAndDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		n := s.start(concurrency(2))
		n.leads(t)
		s.source(n, "demo", 1)
		r, w := newRunner(t), s.writer()
		r.connect(n, 50, nil, nil)
		w.connect(n)
		w.accept("demo", "acme", 20)
		running := r.leased(2)
		n.Reconfigure(concurrency(5))
		running = append(running, r.leased(3)...)
		n.Reconfigure(concurrency(1))
		for i, a := range running[:4] {
			r.settle(a, delivered)
			synctest.Wait()
			require.Empty(t, r.attempts, "%d still run", 4-i)
		}
		r.settle(running[4], delivered)
		for range 15 {
			r.settle(r.leased(1)[0], delivered)
		}
		require.Zero(t, s.outstanding())
		require.Empty(t, r.dropped)
	})
}

func TestAStandbyThatComesToLeadHasTheSettingsThatItWasGivenLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		first := s.start(concurrency(1))
		first.leads(t)
		second := s.start(concurrency(1))
		second.Reconfigure(concurrency(3))
		s.source(first, "demo", 1)
		w := s.writer()
		w.connect(first)
		w.accept("demo", "acme", 20)
		first.stop()
		second.leads(t)
		r := newRunner(t)
		r.connect(second, 50, nil, nil)
		for range 4 { // begins gently
			r.settle(r.leased(1)[0], delivered)
		}
		r.leased(3)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, r.attempts)
	})
}

func TestOnlyWhatCanChangeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSystem(t).start(testConfig())
		cfg := testConfig()
		cfg.Core.Batch, cfg.Core.AttemptTimeout, cfg.Core.Grace = 1, time.Second, time.Second
		cfg.Core.MaxInflight, cfg.Retry.MaxAttempts = 7, 7
		n.Reconfigure(cfg)
		now := n.live.Load()
		require.Equal(t, 7, now.core.MaxInflight)
		require.EqualValues(t, 7, now.retry.MaxAttempts)
		require.Equal(t, testConfig().Core.Batch, now.core.Batch)
		require.Equal(t, testConfig().Core.AttemptTimeout, now.core.AttemptTimeout, "the records of runners name the longest lease")
		require.Equal(t, testConfig().Core.Grace, now.core.Grace)
	})
}

func TestReloadAnswersForTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newSystem(t).start(testConfig())
		_, err := n.Reload(t.Context(), nil)
		requireRefusal(t, err, codes.Unimplemented, "not_implemented")
		n.deps.Reload = func() (applied, restart []string, err error) {
			return []string{"dispatch.concurrency"}, []string{"http.port"}, nil
		}
		out, err := n.Reload(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"dispatch.concurrency"}, out.GetApplied())
		require.Equal(t, []string{"http.port"}, out.GetRestart())
		n.deps.Reload = func() (applied, restart []string, err error) { return nil, nil, errors.New("a must be b") }
		_, err = n.Reload(t.Context(), nil)
		requireRefusal(t, err, codes.FailedPrecondition, "invalid_config")
	})
}
