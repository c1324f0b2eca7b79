package hook

import (
	"math"
	"slices"
	"time"
)

// RetryPolicy decides when a failed delivery is tried again: capped binary exponential back-off with jitter, a bound on
// attempts, and a horizon.
type RetryPolicy struct {
	// Base is the pause after the first failure; it doubles per failure up to Max, before jitter.
	Base, Max time.Duration
	// MaxAttempts bounds the attempts; 0 leaves the horizon as the only bound.
	MaxAttempts uint32
	// Jitter multiplies a pause by a random factor in [0.5, 1).
	Jitter bool
	// Horizon ends a delivery that still fails this long after its first attempt.
	Horizon time.Duration
	// MaxRetryAfter caps what a destination can ask for.
	MaxRetryAfter time.Duration
}

// DefaultRetryPolicy retries for 24 hours, from 100 ms up to 5 minutes apart.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{
		Base: 100 * time.Millisecond, Max: 5 * time.Minute, Jitter: true,
		Horizon: 24 * time.Hour, MaxRetryAfter: time.Hour,
	}
}

// maxLosses: from this loss on, losing the runner counts as a failed attempt, so that a hook that kills its runner ends
// among the dead letters.
const maxLosses = 3

// lossPause spaces a row that was lost or not started.
const lossPause = time.Second

// Verdict is what happens to a delivery next.
type Verdict struct {
	Kind Next
	// Due of the next attempt, for Again.
	Due Timestamp
	// State of the row that is written, for Again and Bury.
	State State
	// Reason and Class of the dead letter, for Bury.
	Reason string
	Class  ErrorClass
}

// Next is a kind of verdict.
type Next uint8

const (
	// Complete removes the row: the sink confirmed.
	Complete Next = iota + 1
	// Again writes the row back with a due time.
	Again
	// Bury makes the row a dead letter.
	Bury
	// Reread asks the store what the row and its hook are now.
	Reread
	// Discard removes a row whose hook is not there any more.
	Discard
)

// Decide turns the end of an attempt that was claimed at claimed and ended at now into what happens next. random is
// drawn from [0, 1).
func (p RetryPolicy) Decide(s State, o Outcome, claimed, now Timestamp, random float64) Verdict {
	if s.FirstAttemptAt == 0 {
		s.FirstAttemptAt = claimed
	}
	switch {
	case o.Class == Delivered:
		return Verdict{Kind: Complete, State: s.ended(o, claimed)}
	case o.Class == Gone:
		return Verdict{Kind: Reread, State: s}
	case o.Class == SourceGone, o.Class == SinkGone:
		return Verdict{Kind: Bury, State: s, Reason: o.Reason, Class: ErrorPermanent}
	case o.Class == NotStarted:
		return Verdict{Kind: Again, State: s, Due: now.Add(lossPause)}
	case o.Class == Lost && s.Lost+1 < maxLosses:
		s.Lost++
		return Verdict{Kind: Again, State: s, Due: now.Add(lossPause)}
	}
	if o.Class == Lost {
		s.Lost++
	}
	s = s.ended(o, claimed)
	if o.Class.ErrorClass() == ErrorPermanent || p.exhausted(s, now) {
		return Verdict{Kind: Bury, State: s, Reason: o.Reason, Class: o.Class.ErrorClass()}
	}
	return Verdict{Kind: Again, State: s, Due: p.due(s, o, now, random)}
}

// Expired says whether a row may not be attempted any more at now; its reason is then "retry_horizon".
func (p RetryPolicy) Expired(s State, now Timestamp) bool {
	return s.FirstAttemptAt != 0 && p.Horizon > 0 && now > s.FirstAttemptAt.Add(p.Horizon)
}

func (p RetryPolicy) exhausted(s State, now Timestamp) bool {
	if p.MaxAttempts > 0 && s.Attempts >= p.MaxAttempts {
		return true
	}
	return p.Horizon > 0 && now >= s.FirstAttemptAt.Add(p.Horizon)
}

// due is never later than the horizon, so that the last attempt runs on it, and never earlier than the destination
// asked for, unless its cap or the horizon come first.
func (p RetryPolicy) due(s State, o Outcome, now Timestamp, random float64) Timestamp {
	pause := max(p.Pause(s.Attempts, random), min(o.RetryAfter, p.MaxRetryAfter), time.Millisecond)
	due := now.Add(pause)
	if horizon := s.FirstAttemptAt.Add(p.Horizon); p.Horizon > 0 && due > horizon {
		return horizon
	}
	return due
}

// Pause is the back-off after the given number of failed attempts, at least 1.
func (p RetryPolicy) Pause(attempts uint32, random float64) time.Duration {
	d := p.Max
	if n := max(attempts, 1) - 1; n < 62 && float64(p.Base)*math.Exp2(float64(n)) < float64(p.Max) {
		d = p.Base << n
	}
	if p.Jitter {
		d = time.Duration(float64(d) * (0.5 + random/2))
	}
	return d
}

// ended counts an attempt and remembers it.
func (s State) ended(o Outcome, claimed Timestamp) State {
	s.Attempts++
	kept := s.History[max(len(s.History)-MaxHistory+1, 0):]
	s.History = append(slices.Clone(kept), Attempt{
		Number: s.Attempts, At: claimed, Class: o.Class, Status: o.Status,
		Duration: o.Duration, Reason: o.Reason, Response: o.Response,
	})
	return s
}
