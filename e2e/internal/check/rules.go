package check

import (
	"time"

	"ankusa.dev/e2e/internal/history"
)

// acks judges the answers among themselves: an id belongs to one event, and an event to one id.
func (c *checker) acks() {
	type event struct{ source, key string }
	first := map[event]string{}
	for i := range c.in.Requests {
		r := &c.in.Requests[i]
		if !r.Acked() {
			continue
		}
		if r.ID == "" {
			c.fail(EarlyAck, "", "request %d was answered %d without an id", r.Seq, r.Status)
		}
		if c.withoutStore(r) {
			c.fail(EarlyAck, r.ID, "acknowledged at %s while there was no store", stamp(r.Answered))
		}
		if r.Key == "" {
			continue
		}
		e := event{r.Source, r.Key}
		if id, seen := first[e]; seen && id != r.ID {
			c.fail(Forked, r.ID, "event %q of %s was first acknowledged as %s", r.Key, r.Source, id)
		} else if !seen {
			first[e] = r.ID
		}
	}
}

func (c *checker) hook(id string, s *story) {
	confirmed := firstConfirmed(s.attempts)
	if len(s.acks) > 0 {
		c.acked(id, s, confirmed)
	} else {
		c.untold(id, s)
	}
	c.repeats(id, s)
	c.content(id, s)
}

// acked judges the fate of a hook that some sender believes to be safe.
func (c *checker) acked(id string, s *story, confirmed *history.Attempt) {
	c.report.Acked++
	c.sameBody(id, s)
	switch {
	case confirmed != nil:
		c.report.Delivered++
	case s.dead:
		c.report.Dead++
	case len(s.attempts) > 0:
		c.fail(Unconfirmed, id, "%d attempts, none confirmed, and no dead letter", len(s.attempts))
	case c.killedNear(s.acks[0].Answered):
		c.fail(EarlyAck, id, "acknowledged at %s, right at a fault, and never seen again", stamp(s.acks[0].Answered))
	default:
		c.fail(Lost, id, "acknowledged at %s and never seen again", stamp(s.acks[0].Answered))
	}
}

// sameBody: every answer that names a hook must be for that hook's event.
func (c *checker) sameBody(id string, s *story) {
	for _, r := range s.acks[1:] {
		same := r.Source == s.acks[0].Source && (r.BodySHA256 == s.acks[0].BodySHA256 || r.Key != "" && r.Key == s.acks[0].Key)
		if !same {
			c.fail(Forked, id, "the id answers request %d and also request %d", s.acks[0].Seq, r.Seq)
		}
		if r.Key == "" {
			c.fail(Forked, id, "two requests without an event key got one id")
		}
	}
}

// untold judges a hook that reached the receiver although no sender knows its id.
func (c *checker) untold(id string, s *story) {
	if len(s.attempts) == 0 {
		return // a dead letter of another run, or of a request whose answer was lost
	}
	c.report.Unknown++
	a := s.attempts[0]
	f := c.sent[bodyOf{a.Source, a.BodySHA256}]
	switch {
	case f == nil:
		c.fail(Invented, id, "no request carried its body")
	case f.open == 0 && f.refused > 0:
		c.fail(Invented, id, "its request was refused")
	case f.open == 0:
		c.fail(Invented, id, "every request with its body was acknowledged under another id")
	}
}

// repeats counts what arrived again after it was confirmed, or while it was still being confirmed.
func (c *checker) repeats(id string, s *story) {
	for i, a := range s.attempts {
		earlier := lastConfirmed(s.attempts[:i])
		if earlier == nil {
			c.overlap(id, s.attempts[:i], a)
			continue
		}
		c.report.Duplicates++
		switch {
		case c.afterPause(earlier, a):
			c.fail(Deposed, id, "confirmed at %s, attempted again at %s", stamp(earlier.Answered), stamp(a.Arrived))
		case c.explained(earlier):
			c.report.Explained++
		default:
			c.fail(Repeated, id, "confirmed at %s, attempted again at %s", stamp(earlier.Answered), stamp(a.Arrived))
		}
	}
}

// overlap: two attempts of one delivery at once are a double lease, whatever their answers.
func (c *checker) overlap(id string, before []*history.Attempt, a *history.Attempt) {
	for _, b := range before {
		if b.Answered.After(a.Arrived) && !c.explained(b) {
			c.fail(Repeated, id, "attempts at %s and %s overlap", stamp(b.Arrived), stamp(a.Arrived))
		}
	}
}

func (c *checker) content(id string, s *story) {
	for i, a := range s.attempts {
		if len(s.acks) > 0 && a.BodySHA256 != s.acks[0].BodySHA256 && !c.otherBody(s, a) {
			c.fail(Changed, id, "sent %.12s, delivered %.12s", s.acks[0].BodySHA256, a.BodySHA256)
		}
		if a.ClaimedSHA256 != "" && a.ClaimedSHA256 != a.BodySHA256 {
			c.fail(Changed, id, "the delivery says %.12s and carries %.12s", a.ClaimedSHA256, a.BodySHA256)
		}
		if a.BadSignature != "" {
			c.fail(Unsigned, id, "%s", a.BadSignature)
		}
		if i == 0 {
			continue
		}
		if first := s.attempts[0]; a.IdempotencyKey != first.IdempotencyKey {
			c.fail(Forked, id, "idempotency key %q became %q", first.IdempotencyKey, a.IdempotencyKey)
		}
		if before := s.attempts[i-1]; a.Arrived.Before(before.Answered.Add(before.RetryAfter)) && before.RetryAfter > 0 {
			c.fail(Hasty, id, "asked for %s at %s, came back at %s", before.RetryAfter, stamp(before.Answered), stamp(a.Arrived))
		}
	}
}

// otherBody: where one event was sent with several bodies, any of those that were acknowledged is a right one.
func (c *checker) otherBody(s *story, a *history.Attempt) bool {
	for _, r := range s.acks[1:] {
		if r.BodySHA256 == a.BodySHA256 {
			return true
		}
	}
	return false
}

// explained: the confirmation was on its way into the store when a fault hit or lasted.
func (c *checker) explained(confirmed *history.Attempt) bool {
	for _, f := range c.in.Faults {
		if f.Kind != history.LeaderPaused && within(f, confirmed, SettleSlack) {
			return true
		}
	}
	return false
}

// afterPause: the delivery was over before a stopped leader was continued, and came again after that.
func (c *checker) afterPause(confirmed, again *history.Attempt) bool {
	for _, f := range c.in.Faults {
		if f.Kind == history.LeaderPaused && confirmed.Answered.Before(f.To) && again.Arrived.After(f.To) {
			return true
		}
	}
	return false
}

// withoutStore: from the request to its answer, nobody could have committed anything.
func (c *checker) withoutStore(r *history.Request) bool {
	for _, f := range c.in.Faults {
		if f.Kind == history.StoreLost && r.Sent.After(f.From) && r.Answered.Before(f.To) {
			return true
		}
	}
	return false
}

// killedNear: a fault took a process away within moments of t.
func (c *checker) killedNear(t time.Time) bool {
	for _, f := range c.in.Faults {
		if !t.Before(f.From.Add(-time.Second)) && !t.After(f.To) {
			return true
		}
	}
	return false
}

func within(f history.Fault, a *history.Attempt, slack time.Duration) bool {
	return !a.Answered.Before(f.From.Add(-slack)) && !a.Arrived.After(f.To)
}

func firstConfirmed(attempts []*history.Attempt) *history.Attempt {
	for _, a := range attempts {
		if a.Confirmed() {
			return a
		}
	}
	return nil
}

func lastConfirmed(attempts []*history.Attempt) *history.Attempt {
	for i := len(attempts) - 1; i >= 0; i-- {
		if attempts[i].Confirmed() {
			return attempts[i]
		}
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }
