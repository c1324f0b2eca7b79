package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// policy changes the retry policy of source a.
func (r *rig) policy(change func(*hook.RetryPolicy)) {
	s := r.sources["a"]
	change(&s.Policy)
	r.sources["a"] = s
}

func TestTheHorizonRunsFromTheFirstClaim(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.policy(func(p *hook.RetryPolicy) { p.Horizon = 10 * time.Minute })
	id := r.accept(sink("t", "a"), 1, 1)[0]
	r.pass(time.Hour) // no runner yet: the horizon does not run
	r.join(1, 1)
	first := r.now
	r.first(hook.Transient)
	require.Equal(t, first, r.rows[hook.Ref{Hook: id}].FirstAttemptAt)
	for len(r.rows) > 0 {
		require.LessOrEqual(t, r.now.Sub(first), 10*time.Minute+time.Second)
		r.pass(time.Second)
		if len(r.leases) > 0 {
			r.first(hook.Transient)
		}
	}
	require.Equal(t, first, r.settled[len(r.settled)-1].Verdict.State.FirstAttemptAt)
	r.idle()
}

// No retry is due later than the horizon, so the last attempt runs there, even where the clock comes a little late.
func TestTheLastAttemptRunsOnTheHorizon(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.policy(func(p *hook.RetryPolicy) { p.Horizon, p.Base, p.Max = time.Minute, time.Hour, time.Hour })
	r.join(1, 1)
	r.accept(sink("t", "a"), 1, 1)
	r.first(hook.Transient)
	r.now = r.now.Add(time.Minute + 20*time.Millisecond)
	r.core.Tick(r.now)
	r.pump()
	require.Len(t, r.leases, 1)
	require.EqualValues(t, 2, r.leases[0].Attempt)
	r.first(hook.Transient)
	require.Len(t, r.buried, 1)
	r.idle()
}

// expired is a rig with one row that failed, and was then left alone beyond its horizon.
func expired(t *testing.T, class hook.Class) *rig {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.policy(func(p *hook.RetryPolicy) { p.Horizon = time.Minute })
	r.join(1, 1)
	r.accept(sink("t", "a"), 1, 1)
	r.report(r.leases[0], hook.Outcome{Class: class, RetryAfter: time.Second})
	r.now = r.now.Add(time.Hour)
	r.elect(nil)
	return r
}

func TestI9_ARowPastItsHorizonIsDeadLetteredAtItsNextClaim(t *testing.T) {
	r := expired(t, hook.Transient)
	r.backlog(sink("t", "a"), 0, 1)
	require.Len(t, r.buried, 1)
	for _, v := range r.buried {
		require.Equal(t, "retry_horizon", v.Reason)
		require.Equal(t, hook.ErrorTransient, v.Class)
	}
	r.idle()
}

func TestARowThatWasThrottledUntilItsHorizonSaysSo(t *testing.T) {
	r := expired(t, hook.Throttled)
	r.backlog(sink("t", "a"), 0, 1)
	for _, v := range r.buried {
		require.Equal(t, hook.ErrorThrottled, v.Class)
	}
	require.Len(t, r.buried, 1)
}

// hanging is a rig whose key stays parked for a day, with rows accepted ten minutes apart.
func hanging(t *testing.T, rows int, change func(*Config)) (*rig, hook.SinkKey) {
	r := newRig(t, func(c *Config) {
		c.Breakers = Breakers{Failures: 1, Open: 24 * time.Hour, MaxOpen: 24 * time.Hour}
		if change != nil {
			change(c)
		}
	})
	r.policy(func(p *hook.RetryPolicy) { p.Horizon, p.Base, p.Max = time.Hour, time.Minute, time.Minute })
	key := sink("t", "a")
	r.join(1, 100)
	r.accept(key, 1, 10)
	r.first(hook.Transient)
	for range rows {
		r.pass(10 * time.Minute)
		r.accept(key, 1, 10)
	}
	return r, key
}

func TestI9_AParkedKeysRowsAreDeadLetteredPastTheirHorizonAndNoOthers(t *testing.T) {
	r, _ := hanging(t, 5, nil)
	require.Empty(t, r.buried)
	r.pass(2 * time.Minute)
	for n := 1; n <= 6; n++ {
		r.pass(10 * time.Minute)
		require.Len(t, r.buried, n)
	}
	require.Len(t, r.given, 1, "without an attempt")
	require.Empty(t, r.rows)
	for _, s := range r.settled[1:] {
		require.Equal(t, hook.Bury, s.Verdict.Kind)
		require.Equal(t, "retry_horizon", s.Verdict.Reason)
		require.Zero(t, s.Verdict.State.Attempts*b2u(s.Delivery.FirstAttemptAt == 0))
	}
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// The sweep stops at the first row that is not past, and does not come back before that one is.
func TestI9_ASweepStopsAtTheFirstRowThatIsNotPast(t *testing.T) {
	r, _ := hanging(t, 5, nil)
	n := len(r.asked)
	r.pass(9 * time.Minute)
	require.Len(t, r.asked, n, "nothing is past yet")
	r.pass(2 * time.Minute)
	require.Len(t, r.buried, 1)
	swept := len(r.asked) - n
	require.LessOrEqual(t, swept, 2)
	r.pass(7 * time.Minute)
	require.Len(t, r.asked, n+swept)
}

// A million rows behind an open breaker cost nothing but the sweep of those that are past.
func TestI9_ASweepObeysTheWindows(t *testing.T) {
	r, key := hanging(t, 0, func(c *Config) { c.MaxInflight, c.MaxInflightBytes = 7, 100 })
	r.accept(key, 300, 60)
	r.holdSettles = true
	r.pass(2 * time.Hour)
	require.LessOrEqual(t, r.core.Stats().Claimed, 7)
	for len(r.settles) > 0 {
		r.answerSettles()
		r.pump()
		r.pass(time.Millisecond)
	}
	require.Len(t, r.buried, 301)
	require.Empty(t, r.rows)
}

// Rows with an earlier due time turn up behind the sweep's back.
func TestI9_ASweepComesForRowsThatTurnUpLate(t *testing.T) {
	r, key := hanging(t, 0, nil)
	late := r.store(key, 1, 10)
	r.pass(30 * time.Minute)
	r.accept(key, 1, 10)
	r.pass(time.Minute)
	r.notify(late)
	r.pass(29*time.Minute + 30*time.Second)
	require.NotContains(t, r.rows, hook.Ref{Hook: late.Hooks[0]})
}

// Parked, swept and scanned at once: the key's pause ends while its sweep is under way.
func TestAPauseThatEndsDuringASweep(t *testing.T) {
	r, _ := hanging(t, 3, func(c *Config) { c.Breakers.Open = 65 * time.Minute })
	r.holdScans = true
	r.pass(33 * time.Minute) // the first rows are past
	require.NotEmpty(t, r.scans)
	r.pass(5 * time.Minute) // the pause is over
	r.holdScans = false
	r.pump()
	require.Len(t, r.leases, 1, "one probe")
	r.first(hook.Delivered)
	r.finish(5 * time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// A source that is revised while its parked rows are swept.
func TestARevisionDuringASweep(t *testing.T) {
	r, _ := hanging(t, 3, nil)
	r.holdScans = true
	r.pass(33 * time.Minute)
	require.NotEmpty(t, r.scans)
	r.core.Revised(r.now, "a")
	r.holdScans = false
	r.pump()
	require.Len(t, r.leases, 1, "begins gently")
	r.finish(5 * time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

func TestASweepGoesOnAfterAFailedScan(t *testing.T) {
	r, _ := hanging(t, 0, nil)
	r.holdScans = true
	r.pass(61*time.Minute + time.Second)
	require.Len(t, r.scans, 1)
	r.core.ScanFailed(r.now, r.scans[0])
	r.scans, r.holdScans = nil, false
	r.pump()
	r.pass(time.Second)
	require.Len(t, r.buried, 1)
}

func TestMaxAttemptsEndADelivery(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.policy(func(p *hook.RetryPolicy) { p.MaxAttempts = 3 })
	r.join(1, 1)
	r.accept(sink("t", "a"), 1, 1)
	for n := uint32(1); n <= 3; n++ {
		require.Equal(t, n, r.leases[0].Attempt, "L23: the row counts its attempts")
		r.first(hook.Transient)
		r.pass(10 * time.Second)
	}
	require.Len(t, r.buried, 1)
	r.idle()
}
