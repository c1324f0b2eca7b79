package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// broken is a rig whose key has n rows and an open breaker.
func broken(t *testing.T, n int, change func(*Config)) (*rig, hook.SinkKey) {
	r := newRig(t, change)
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, n, 10)
	for range r.cfg.Breakers.Failures {
		r.first(hook.Transient)
	}
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	for len(r.leases) > 0 {
		r.first(hook.Gone) // says nothing about the destination
	}
	return r, key
}

func TestL13_ABreakerOpensAfterFailuresInARow(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	r.accept(sink("t", "a"), 8, 10)
	r.first(hook.Transient)
	r.first(hook.TimedOut)
	r.first(hook.Delivered) // not in a row
	r.first(hook.Transient)
	r.first(hook.Throttled)
	require.Zero(t, r.core.Stats().BreakersOpen)
	r.first(hook.Transient)
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.kinds(hook.EventBreakerOpened))
}

func TestAPermanentFailureDoesNotCountForTheBreaker(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 100)
	r.accept(sink("t", "a"), 20, 10)
	for len(r.leases) > 0 {
		r.first(hook.Permanent)
	}
	require.Zero(t, r.kinds(hook.EventBreakerOpened))
	require.Len(t, r.buried, 20)
	r.idle()
}

func TestZeroFailuresTurnBreakersOff(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.join(1, 100)
	r.accept(sink("t", "a"), 40, 10)
	for range 40 {
		r.first(hook.Transient)
	}
	require.Zero(t, r.kinds(hook.EventBreakerOpened))
	require.Equal(t, 40, r.core.Stats().Waiting)
}

func TestTurningBreakersOffClosesThem(t *testing.T) {
	r, _ := broken(t, 10, nil)
	r.configure(func(c *Config) { c.Breakers.Failures = 0 })
	require.Zero(t, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.kinds(hook.EventBreakerClosed))
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// Parking writes nothing, holds nothing, and counts no attempt.
func TestAnOpenBreakerParksWithoutAWrite(t *testing.T) {
	r, key := broken(t, 500, nil)
	settled, scans := len(r.settled), len(r.asked)
	r.accept(key, 100, 10)
	r.pass(r.cfg.Breakers.Open - time.Second)
	require.Empty(t, r.leases)
	require.Len(t, r.settled, settled)
	require.Len(t, r.asked, scans)
	require.Zero(t, r.core.Stats().Claimed)
	attempted := 0
	for _, d := range r.rows {
		attempted += int(d.Attempts)
	}
	require.Equal(t, 3, attempted)
}

func TestABreakersPeriodDoublesUpToItsCapForever(t *testing.T) {
	r, _ := broken(t, 200, nil)
	period := r.cfg.Breakers.Open
	for range 80 { // far beyond what a shift can hold
		r.pass(period - time.Second)
		require.Empty(t, r.leases, "period %s", period)
		r.pass(2 * time.Second)
		require.Len(t, r.leases, 1, "one probe after %s", period)
		r.first(hook.Transient)
		period = min(2*period, r.cfg.Breakers.MaxOpen)
	}
	require.Equal(t, 81, r.kinds(hook.EventBreakerOpened))
	require.Equal(t, 80, r.kinds(hook.EventBreakerHalfOpen))
}

func TestExactlyOneProbeRunsWhileABreakerIsHalfOpen(t *testing.T) {
	r, key := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open)
	require.Len(t, r.leases, 1)
	r.accept(key, 20, 10)
	r.pass(10 * time.Second)
	require.Len(t, r.leases, 1)
	require.Equal(t, 1, r.core.Stats().Claimed, "nothing else holds room meanwhile")
	r.first(hook.Delivered)
	require.Zero(t, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.kinds(hook.EventBreakerClosed))
}

// Rows that are named together while nothing was there to probe with.
func TestOneOfManyNamedRowsIsTheProbe(t *testing.T) {
	r := newRig(t, nil)
	r.policy(func(p *hook.RetryPolicy) { p.Base, p.Max = time.Hour, time.Hour })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 3, 10)
	r.all(hook.Transient)
	r.pass(r.cfg.Breakers.Open)
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	r.accept(key, 5, 10)
	require.Len(t, r.leases, 1)
	r.deliver()
	r.finish(time.Hour + time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestAProbeWithoutAVerdictHandsOnToTheNextRow(t *testing.T) {
	for _, class := range []hook.Class{hook.Gone, hook.SourceGone, hook.SinkGone, hook.NotStarted, hook.Lost} {
		r, _ := broken(t, 50, nil)
		r.pass(r.cfg.Breakers.Open)
		probe := r.leases[0]
		if class == hook.Gone {
			delete(r.rows, probe.Delivery.Ref())
		}
		r.first(class)
		require.Len(t, r.leases, 1, "class %d", class)
		require.NotEqual(t, probe.Delivery.Hook, r.leases[0].Delivery.Hook)
		require.Equal(t, 1, r.core.Stats().BreakersOpen)
		r.first(hook.Delivered)
		require.Zero(t, r.core.Stats().BreakersOpen)
	}
}

func TestAProbePastItsHorizonHandsOnToTheNextRow(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers = Breakers{Failures: 1, Open: time.Minute, MaxOpen: time.Minute} })
	s := r.sources["a"]
	s.Policy.Horizon = 30 * time.Second
	r.sources["a"] = s
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 1, 10)
	r.first(hook.Transient) // due again before its horizon, behind the breaker
	fresh := r.accept(key, 1, 10)[0]
	delete(r.rows, hook.Ref{Hook: fresh})
	r.pass(59 * time.Second)
	later := r.accept(key, 1, 10)[0]
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1)
	require.Equal(t, later, r.leases[0].Delivery.Hook)
	require.Len(t, r.buried, 1)
	for _, v := range r.buried {
		require.Equal(t, "retry_horizon", v.Reason)
	}
}

func TestAPermanentAnswerOfAProbeCloses(t *testing.T) {
	r, _ := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open)
	r.first(hook.Permanent)
	require.Zero(t, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.kinds(hook.EventBreakerClosed))
}

// A lease that never reached its runner is no verdict, and the key must not wait for it.
func TestAProbeThatIsTakenBackIsProbedAgain(t *testing.T) {
	r, _ := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open)
	require.Len(t, r.leases, 1)
	r.core.Lost(r.now, runnerID(1))
	r.pump()
	r.leases = nil
	r.join(1, 100)
	require.Len(t, r.leases, 1)
	r.deliver()
	require.Zero(t, r.core.Stats().BreakersOpen)
}

func TestAProbesLostRunnerLeavesTheBreakerHalfOpen(t *testing.T) {
	r, _ := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open)
	r.core.Lost(r.now, runnerID(1))
	r.pump()
	r.leases = nil
	r.join(2, 100)
	r.pass(r.cfg.Grace + time.Second)
	require.Len(t, r.leases, 1)
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
}

// Attempts that began before a breaker opened end while it is open or half open: only the probe's verdict counts.
func TestStragglersDoNotMoveAHalfOpenBreaker(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 50, 10)
	stragglers := append([]Lease(nil), r.leases[3:]...)
	for range 3 {
		r.first(hook.Transient)
	}
	running := len(r.leases)
	r.pass(r.cfg.Breakers.Open)
	require.Len(t, r.leases, running+1)
	probe := r.leases[len(r.leases)-1]
	r.report(stragglers[0], hook.Outcome{Class: hook.Transient})
	r.report(stragglers[1], hook.Outcome{Class: hook.Delivered})
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.kinds(hook.EventBreakerOpened))
	r.report(stragglers[2], throttledFor(time.Minute))
	require.Equal(t, 1, r.kinds(hook.EventBreakerOpened))
	r.report(probe, hook.Outcome{Class: hook.Delivered})
	require.Zero(t, r.core.Stats().BreakersOpen)
	n := len(r.given)
	r.pass(59 * time.Second)
	require.Len(t, r.given, n, "the pause stands although the breaker has closed")
	r.pass(2 * time.Second)
	require.Greater(t, len(r.given), n)
}

func TestANewRevisionClosesTheBreakersOfItsSource(t *testing.T) {
	r, key := broken(t, 50, nil)
	r.core.Revised(r.now, "b")
	r.pump()
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	r.core.Revised(r.now, "a")
	r.pump()
	require.Zero(t, r.core.Stats().BreakersOpen)
	require.Equal(t, 1, r.running(key), "begins gently")
	r.deliver()
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// A revision in the middle of a probe: the old probe's end is no verdict any more.
func TestARevisionDuringAProbe(t *testing.T) {
	r, _ := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open)
	probe := r.leases[0]
	r.core.Revised(r.now, "a")
	r.pump()
	r.report(probe, hook.Outcome{Class: hook.Transient})
	require.Zero(t, r.core.Stats().BreakersOpen)
	r.deliver()
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// A revision, with a scan of the parked key under way, and a key that has no row left.
func TestI11_ARevisedKeyWithoutWorkIsForgotten(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 1 })
	r.join(1, 1)
	p := r.sources["a"]
	p.Policy.MaxAttempts = 1
	r.sources["a"] = p
	r.accept(sink("t", "a"), 1, 1)
	r.first(hook.Transient)
	require.Len(t, r.buried, 1)
	require.Equal(t, 1, r.core.Stats().Keys, "the breaker is remembered while it is open")
	r.core.Revised(r.now, "a")
	r.pump()
	r.idle()
}

func TestABreakerWithoutWorkIsForgottenWhenItsPeriodEnds(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 1 })
	r.join(1, 1)
	p := r.sources["a"]
	p.Policy.MaxAttempts = 1
	r.sources["a"] = p
	r.accept(sink("t", "a"), 1, 1)
	r.first(hook.Transient)
	r.pass(r.cfg.Breakers.Open)
	r.idle()
}

func TestARevisionWhileAScanIsUnderWay(t *testing.T) {
	r, key := broken(t, 50, nil)
	r.pass(r.cfg.Breakers.Open - time.Millisecond)
	r.holdScans = true
	r.pass(time.Second)
	require.Len(t, r.scans, 1, "looks for a probe")
	r.core.Revised(r.now, "a")
	r.pump()
	r.holdScans = false
	r.pump()
	require.Equal(t, 1, r.running(key))
	r.deliver()
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// A late success of an earlier lease is a verdict on the destination, too, when it is the probe's row.
func TestALateSuccessOfTheProbesRowCloses(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 1 })
	r.join(1, 1)
	r.accept(sink("t", "a"), 1, 1)
	old := r.leases[0]
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin)
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	r.pass(r.cfg.Breakers.Open)
	require.Len(t, r.leases, 1)
	r.reportAs(old.Runner, old, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	require.Zero(t, r.core.Stats().BreakersOpen)
	r.idle()
}
