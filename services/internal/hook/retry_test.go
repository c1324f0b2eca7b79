package hook

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const claimed = Timestamp(1_900_000_000_000 << logicalBits)

func TestPausesDoubleUpToTheirCap(t *testing.T) {
	p := RetryPolicy{Base: 100 * time.Millisecond, Max: time.Second}
	for attempts, want := range []int64{100, 100, 200, 400, 800, 1000, 1000} {
		require.Equal(t, want, p.Pause(uint32(attempts), 0.9).Milliseconds(), "after %d", attempts)
	}
}

func TestAPauseStaysWithinItsJitterAndNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const month = int64(30 * 24 * time.Hour)
		p := RetryPolicy{Base: time.Duration(rapid.Int64Range(1, month).Draw(t, "base")), Jitter: rapid.Bool().Draw(t, "jitter")}
		p.Max = time.Duration(rapid.Int64Range(int64(p.Base), month).Draw(t, "max"))
		attempts := rapid.Uint32().Draw(t, "attempts")
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		pause := p.Pause(attempts, random)
		if pause < p.Base/2-1 || pause > p.Max {
			t.Fatalf("%v after %d attempts", pause, attempts)
		}
	})
}

func TestAJitteredPauseIsHalfToWhole(t *testing.T) {
	p := RetryPolicy{Base: time.Second, Max: time.Minute, Jitter: true}
	require.Equal(t, 500*time.Millisecond, p.Pause(1, 0))
	require.Equal(t, 750*time.Millisecond, p.Pause(1, 0.5))
}

func TestTheEndOfAnAttemptDecidesWhatComesNext(t *testing.T) {
	later := claimed.Add(time.Minute)
	for name, c := range map[string]struct {
		state   State
		outcome Outcome
		want    Verdict
	}{
		"delivered": {State{}, Outcome{Class: Delivered}, Verdict{Kind: Complete, State: State{Attempts: 1}}},
		"gone":      {State{Attempts: 2}, Outcome{Class: Gone}, Verdict{Kind: Reread, State: State{Attempts: 2}}},
		"not started costs no attempt": {
			State{Attempts: 2}, Outcome{Class: NotStarted}, Verdict{Kind: Again, State: State{Attempts: 2}, Due: later.Add(time.Second)},
		},
		"lost costs no attempt": {
			State{Lost: 1}, Outcome{Class: Lost}, Verdict{Kind: Again, State: State{Lost: 2}, Due: later.Add(time.Second)},
		},
		"the third loss is a failure": {
			State{Lost: 2}, Outcome{Class: Lost},
			Verdict{Kind: Again, State: State{Lost: 3, Attempts: 1}, Due: later.Add(100 * time.Millisecond)},
		},
		"transient": {
			State{Attempts: 1}, Outcome{Class: Transient},
			Verdict{Kind: Again, State: State{Attempts: 2}, Due: later.Add(200 * time.Millisecond)},
		},
		"permanent": {
			State{}, Outcome{Class: Permanent, Reason: "http: status 410"},
			Verdict{Kind: Bury, State: State{Attempts: 1}, Reason: "http: status 410", Class: ErrorPermanent},
		},
		"a source that is gone costs no attempt": {
			State{}, Outcome{Class: SourceGone, Reason: "source_gone"},
			Verdict{Kind: Bury, Reason: "source_gone", Class: ErrorPermanent},
		},
		"a sink that is gone costs no attempt": {
			State{Attempts: 2}, Outcome{Class: SinkGone, Reason: "sink_gone 0 http"},
			Verdict{Kind: Bury, State: State{Attempts: 2}, Reason: "sink_gone 0 http", Class: ErrorPermanent},
		},
		"the last attempt of a bound": {
			State{Attempts: 4}, Outcome{Class: Throttled, Reason: "http: status 429"},
			Verdict{Kind: Bury, State: State{Attempts: 5}, Reason: "http: status 429", Class: ErrorThrottled},
		},
		"past the horizon": {
			State{Attempts: 1, FirstAttemptAt: claimed.Add(-24 * time.Hour)}, Outcome{Class: TimedOut},
			Verdict{Kind: Bury, State: State{Attempts: 2, FirstAttemptAt: claimed.Add(-24 * time.Hour)}, Class: ErrorTransient},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultRetryPolicy()
			p.Jitter, p.MaxAttempts = false, 5
			got := p.Decide(c.state, c.outcome, claimed, later, 0)
			if c.want.State.FirstAttemptAt == 0 {
				c.want.State.FirstAttemptAt = claimed
			}
			require.Len(t, got.State.History, int(c.want.State.Attempts-c.state.Attempts))
			got.State.History = nil
			require.Equal(t, c.want, got)
		})
	}
}

func TestADestinationMayAskForAPauseUpToTheCapAndTheHorizon(t *testing.T) {
	p := DefaultRetryPolicy()
	p.Jitter = false
	asked := func(pause time.Duration, age time.Duration) time.Duration {
		now := claimed.Add(age)
		v := p.Decide(State{FirstAttemptAt: claimed}, Outcome{Class: Throttled, RetryAfter: pause}, now, now, 0)
		require.Equal(t, Again, v.Kind)
		return v.Due.Sub(now)
	}
	require.Equal(t, 100*time.Millisecond, asked(time.Millisecond, 0), "the back-off is the least")
	require.Equal(t, 10*time.Minute, asked(10*time.Minute, 0))
	require.Equal(t, time.Hour, asked(48*time.Hour, 0), "the cap")
	require.Equal(t, time.Minute, asked(time.Hour, 24*time.Hour-time.Minute), "the last attempt runs on the horizon")
}

func TestARowExpiresAfterItsHorizonOnly(t *testing.T) {
	p := DefaultRetryPolicy()
	require.False(t, p.Expired(State{}, claimed), "never attempted")
	require.False(t, p.Expired(State{FirstAttemptAt: claimed}, claimed.Add(24*time.Hour)))
	require.True(t, p.Expired(State{FirstAttemptAt: claimed}, claimed.Add(24*time.Hour)+1))
	p.Horizon = 0
	require.False(t, p.Expired(State{FirstAttemptAt: claimed}, claimed.Add(1000*time.Hour)), "no horizon")
}

func TestTheLastAttemptsAreRememberedAndSharedWithNobody(t *testing.T) {
	p := DefaultRetryPolicy()
	var s State
	for n := range uint32(MaxHistory + 3) {
		before := append([]Attempt(nil), s.History...)
		v := p.Decide(s, Outcome{Class: Transient, Status: 503, Response: []byte("no")}, claimed, claimed, 0)
		require.ElementsMatch(t, before, s.History, "the state that was decided on stays as it was")
		s = v.State
		require.Equal(t, n+1, s.Attempts)
	}
	require.Len(t, s.History, MaxHistory)
	require.EqualValues(t, 4, s.History[0].Number)
	require.EqualValues(t, MaxHistory+3, s.History[MaxHistory-1].Number)
	one := p.Decide(s, Outcome{Class: Transient, Reason: "one"}, claimed, claimed, 0)
	p.Decide(s, Outcome{Class: Transient, Reason: "two"}, claimed, claimed, 0)
	require.Equal(t, "one", one.State.History[MaxHistory-1].Reason)
}
