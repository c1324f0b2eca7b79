package check

import (
	"slices"
	"time"

	"ankusa.dev/e2e/internal/history"
)

// laneOf names a lane.
type laneOf struct{ source, key string }

// lane is what the logs say about one lane: its attempts as they arrived, and its hooks by their first attempt.
type lane struct {
	key      string
	attempts []*history.Attempt
	hooks    []laned
}

// laned is one hook of a lane: when the earliest request was sent that may have made it, and when it was acknowledged;
// the latter is zero where nobody was told.
type laned struct {
	id          string
	sent, acked time.Time
}

// lanes judges the deliveries of ordered sinks.
func (c *checker) lanes() {
	byName := map[laneOf]*lane{}
	var names []laneOf
	first := c.firstSent()
	for _, id := range c.order {
		s := c.hooks[id]
		r := c.requestOf(s)
		if r == nil || !r.Ordered || len(s.attempts) == 0 {
			continue
		}
		name := laneOf{r.Source, r.Lane}
		l := byName[name]
		if l == nil {
			l = &lane{key: r.Lane}
			byName[name] = l
			names = append(names, name)
		}
		h := laned{id: id, sent: first[eventOf(r)]}
		if len(s.acks) > 0 {
			h.acked = s.acks[0].Answered
			if r.Key == "" { // each request made a hook of its own
				h.sent = r.Sent
			}
		}
		l.hooks, l.attempts = append(l.hooks, h), append(l.attempts, s.attempts...)
	}
	c.report.Lanes = len(names)
	for _, name := range names {
		c.lane(byName[name])
	}
}

// requestOf finds the request that a hook came from: the one that was told its id, else any with its body.
func (c *checker) requestOf(s *story) *history.Request {
	if len(s.acks) > 0 || len(s.attempts) == 0 {
		return firstOf(s.acks)
	}
	if f := c.sent[bodyOf{s.attempts[0].Source, s.attempts[0].BodySHA256}]; f != nil {
		return f.first
	}
	return nil
}

func firstOf(acks []*history.Request) *history.Request {
	if len(acks) == 0 {
		return nil
	}
	return acks[0]
}

// eventID is what a provider sends again: an event key, or a body where there is none.
type eventID struct{ source, key, sha string }

func eventOf(r *history.Request) eventID {
	if r.Key != "" {
		return eventID{source: r.Source, key: r.Key}
	}
	return eventID{source: r.Source, sha: r.BodySHA256}
}

// firstSent is when each event of an ordered source was sent for the first time.
func (c *checker) firstSent() map[eventID]time.Time {
	first := map[eventID]time.Time{}
	for i := range c.in.Requests {
		r := &c.in.Requests[i]
		if at, known := first[eventOf(r)]; r.Ordered && (!known || r.Sent.Before(at)) {
			first[eventOf(r)] = r.Sent
		}
	}
	return first
}

func (c *checker) lane(l *lane) {
	slices.SortStableFunc(l.attempts, func(a, b *history.Attempt) int { return a.Arrived.Compare(b.Arrived) })
	c.turns(l, c.walk(l))
}

// walk judges the attempts one after the other and returns the hooks in the order of their first ones.
func (c *checker) walk(l *lane) (order []string) {
	seen := map[string]bool{}
	var open []*history.Attempt // not answered yet
	for i, a := range l.attempts {
		if a.OrderingKey != l.key {
			c.fail(Disordered, a.ID, "of lane %q, delivered with the key %q", l.key, a.OrderingKey)
		}
		open = slices.DeleteFunc(open, func(b *history.Attempt) bool { return !b.Answered.After(a.Arrived) })
		if i == 0 || a.ID != l.attempts[i-1].ID {
			c.succession(l.attempts[:i], open, a, seen[a.ID])
		}
		open = append(open, a)
		if !seen[a.ID] {
			seen[a.ID] = true
			order = append(order, a.ID)
		}
	}
	return order
}

// succession judges the step from one hook of a lane to another: nothing comes back once its successor has begun, not
// after a fault either, and those before have ended.
func (c *checker) succession(before, open []*history.Attempt, a *history.Attempt, again bool) {
	if again {
		c.fail(Disordered, a.ID, "attempted again at %s, after its successor", stamp(a.Arrived))
		return
	}
	if len(before) == 0 {
		return
	}
	for _, b := range open {
		if !c.explained(b) {
			c.fail(Disordered, a.ID, "arrived at %s while hook %s was being answered", stamp(a.Arrived), b.ID)
		}
	}
	last := before[len(before)-1]
	if s := c.hooks[last.ID]; firstConfirmed(s.attempts) == nil && !s.dead {
		c.fail(Disordered, a.ID, "arrived although hook %s before it had not ended", last.ID)
	}
}

// turns compares the order of a lane with that of the acknowledgements: whoever was acknowledged before another was sent
// goes first.
func (c *checker) turns(l *lane, order []string) {
	hooks := map[string]laned{}
	for _, h := range l.hooks {
		hooks[h.id] = h
	}
	var soonest laned // acknowledged, of those that were delivered later
	for i := len(order) - 1; i >= 0; i-- {
		h := hooks[order[i]]
		if !soonest.acked.IsZero() && soonest.acked.Before(h.sent) {
			c.fail(Disordered, h.id, "sent at %s, delivered before hook %s, which was acknowledged at %s",
				stamp(h.sent), soonest.id, stamp(soonest.acked))
		}
		if !h.acked.IsZero() && (soonest.acked.IsZero() || h.acked.Before(soonest.acked)) {
			soonest = h
		}
	}
}
