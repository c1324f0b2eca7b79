package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestL26_NothingRunsBeforeTheTimeThatADestinationAskedFor(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 50, 10)
	r.report(r.leases[0], throttledFor(2*time.Minute))
	began := len(r.given)
	r.all(hook.Delivered)
	r.accept(key, 5, 10)
	r.accept(sink("t", "b"), 1, 1)
	require.Len(t, r.given, began+1, "another key goes on")
	r.all(hook.Delivered)
	r.pass(2*time.Minute - time.Second)
	require.Len(t, r.given, began+1)
	r.pass(time.Second)
	require.Equal(t, 4, r.running(key), "half of the 8 that ran")
}

// A destination that answers all of 8 attempts with a 429 has asked for half, not for an eighth.
func TestL26_OneBurstOfThrottledAnswersHalvesOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 50, 10)
	for _, l := range append([]Lease(nil), r.leases...) {
		r.report(l, throttledFor(time.Minute))
	}
	r.pass(time.Minute)
	require.Equal(t, 4, r.running(key))
	for _, l := range append([]Lease(nil), r.leases...) {
		r.report(l, throttledFor(time.Minute))
	}
	r.pass(time.Minute)
	require.Equal(t, 2, r.running(key), "the next burst halves again")
}

func TestL26_A429WithoutATimeHalvesToo(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 50, 10)
	for _, l := range append([]Lease(nil), r.leases...) {
		r.report(l, throttledFor(0))
	}
	require.Equal(t, 4, r.running(key))
}

func TestL26_APaceRisesByOnePerTwentySuccesses(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 500, 10)
	r.report(r.leases[0], throttledFor(time.Minute))
	r.all(hook.Delivered)
	r.pass(time.Minute)
	for want := 4; want <= 8; want++ {
		for range successesPerStep {
			require.Equal(t, want, r.running(key))
			r.first(hook.Delivered)
		}
	}
	require.Equal(t, 8, r.running(key))
}

func TestL26_ThrottledAnswersCountForTheBreaker(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	r.accept(sink("t", "a"), 50, 10)
	for range 3 {
		r.report(r.leases[0], throttledFor(time.Second))
	}
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	n := len(r.given)
	r.pass(r.cfg.Breakers.Open - time.Second)
	require.Len(t, r.given, n, "the longer of both pauses counts")
}

func TestL20_AProbeWaitsForTheTimeThatTheDestinationAskedFor(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	r.accept(sink("t", "a"), 50, 10)
	for range 3 {
		r.report(r.leases[0], throttledFor(10*time.Minute))
	}
	n := len(r.given)
	r.pass(10*time.Minute - time.Second)
	require.Len(t, r.given, n)
	r.all(hook.Gone)
	r.pass(2 * time.Second)
	require.Len(t, r.given, n+1)
}

func TestRetryAfterIsCapped(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.join(1, 100)
	r.accept(sink("t", "a"), 50, 10)
	r.report(r.leases[0], throttledFor(1000*time.Hour))
	r.all(hook.Delivered)
	n := len(r.given)
	r.pass(r.sources["a"].Policy.MaxRetryAfter + time.Second)
	require.Greater(t, len(r.given), n)
}

func TestL21_AClosedBreakerBeginsGently(t *testing.T) {
	r, key := broken(t, 100, nil)
	r.pass(r.cfg.Breakers.Open)
	r.first(hook.Delivered)
	gently(t, r, key)
}

// gently: one attempt, and twice as many per success up to the cap.
func gently(t *testing.T, r *rig, key hook.SinkKey) {
	t.Helper()
	for want := 1; want < 8; want *= 2 {
		require.Equal(t, want, r.running(key))
		r.first(hook.Delivered)
	}
	require.Equal(t, 8, r.running(key))
}

func TestL21_ANewLeadersBacklogBeginsGently(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	g := r.store(sink("t", "a"), 100, 10)
	r.backlog(g.Key, g.Start, 100)
	gently(t, r, g.Key)
}

func TestL21_AStoreOutageEndsGently(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	r.holdReads = true
	g := r.store(sink("t", "a"), 20, 10)
	r.notify(g)
	r.core.ReadFailed(r.now, r.reads[0])
	r.reads, r.holdReads = nil, false
	r.pump()
	r.notify(r.store(g.Key, 20, 10))
	require.Empty(t, r.leases, "nothing is read for a moment")
	r.pass(pause)
	gently(t, r, g.Key)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestL21_TheFirstRunnerMeetsABacklogGently(t *testing.T) {
	r := newRig(t, nil)
	r.accept(sink("t", "a"), 100, 10)
	r.join(1, 100)
	gently(t, r, sink("t", "a"))
}

func TestL20_RetriesAreSpreadByJitter(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0; c.SinkConcurrency = 0 })
	s := r.sources["a"]
	s.Policy.Jitter, s.Policy.Base = true, time.Minute
	r.sources["a"] = s
	n := 0.0
	r.core.random = func() float64 { n += 0.09; return n - float64(int(n)) }
	r.join(1, 100)
	r.accept(sink("t", "a"), 10, 10)
	r.all(hook.Transient)
	due := map[hook.Timestamp]bool{}
	for _, d := range r.rows {
		due[d.Due.Add(0)>>18] = true
	}
	require.Len(t, due, 10)
}
