// Package check judges a finished run by its logs alone. It holds no model of the product: only what a sender was told,
// what a receiver saw, which deliveries are listed as dead, and when the run was disturbed.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ankusa.dev/e2e/internal/history"
)

// Input is the history of a run that has come to rest: everything that was going to be delivered was.
type Input struct {
	Requests    []history.Request
	Attempts    []history.Attempt
	DeadLetters []history.DeadLetter
	Faults      []history.Fault
}

// SettleSlack is how long after a confirmation its settle may take before the confirmation counts as settled. A fault
// that hits later than this does not explain a duplicate.
const SettleSlack = 5 * time.Second

// Invariant names what a violation breaks.
type Invariant string

const (
	// EarlyAck: I1, an acknowledged hook that a fault took away right after the answer.
	EarlyAck Invariant = "I1 no 2xx before the commit"
	// Lost: I2, an acknowledged hook that is neither delivered nor dead.
	Lost Invariant = "I2 acked is pending, delivered or dead"
	// Unconfirmed: I3, a delivery that ended although no attempt was confirmed.
	Unconfirmed Invariant = "I3 a row goes only after its sink confirmed"
	// Deposed: I4, a delivery repeated after a paused leader was continued.
	Deposed Invariant = "I4 a deposed leader changes nothing"
	// Repeated: I5, a duplicate that no fault explains.
	Repeated Invariant = "I5 nothing is delivered twice without a fault"
	// Disordered: I6, a lane whose hooks overlap, overtake one another, or come back after their successor.
	Disordered Invariant = "I6 a lane is delivered one at a time in order"
	// Changed: I12, bytes that differ from those sent.
	Changed Invariant = "I12 bytes are delivered as received"
	// Invented: a delivery that no request of the load accounts for, or one whose request was refused.
	Invented Invariant = "nothing is delivered that was not accepted"
	// Forked: one provider event that became several hooks, or one hook with several idempotency keys.
	Forked Invariant = "one event is one hook with one key"
	// Unsigned: a delivery whose signature does not verify.
	Unsigned Invariant = "deliveries are signed"
	// Hasty: an attempt before the pause ended that the receiver had asked for.
	Hasty Invariant = "never earlier than Retry-After"
)

// Violation is one broken promise.
type Violation struct {
	Invariant Invariant
	Hook      string
	Detail    string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: hook %s: %s", v.Invariant, v.Hook, v.Detail)
}

// Report is the verdict on a run.
type Report struct {
	Violations []Violation
	// Acked counts the hooks that were acknowledged, Delivered those of them that were confirmed, Dead those listed.
	Acked, Delivered, Dead int
	// Unknown counts the delivered hooks of which no sender was told.
	Unknown int
	// Duplicates counts the repeated deliveries; Explained those among them that a fault accounts for.
	Duplicates, Explained int
	// Lanes counts the lanes with deliveries.
	Lanes int
	// Unanswered counts requests without an answer, or with one that leaves the hook's fate open.
	Unanswered int
}

// Run judges a history.
func Run(in Input) Report {
	c := newChecker(in)
	c.acks()
	for _, id := range c.order {
		c.hook(id, c.hooks[id])
	}
	c.lanes()
	slices.SortStableFunc(c.report.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.Hook, b.Hook))
	})
	return c.report
}

// story is all that the logs say about one hook.
type story struct {
	acks     []*history.Request
	attempts []*history.Attempt
	dead     bool
}

type checker struct {
	in     Input
	hooks  map[string]*story
	order  []string
	report Report
	// sent holds, per source and body, the requests of the load and whether one of them may have been stored.
	sent map[bodyOf]*fate
}

type bodyOf struct{ source, sha string }

// fate counts the requests that carried one body by what the sender was told.
type fate struct {
	acked, refused, open int
	first                *history.Request
}

func newChecker(in Input) *checker {
	c := &checker{in: in, hooks: map[string]*story{}, sent: map[bodyOf]*fate{}}
	for i := range in.Requests {
		r := &in.Requests[i]
		c.count(r)
		if r.Acked() {
			s := c.story(r.ID)
			s.acks = append(s.acks, r)
		}
	}
	for i := range in.Attempts {
		s := c.story(in.Attempts[i].ID)
		s.attempts = append(s.attempts, &in.Attempts[i])
	}
	for i := range in.DeadLetters {
		c.story(in.DeadLetters[i].ID).dead = true
	}
	for _, s := range c.hooks {
		slices.SortStableFunc(s.attempts, func(a, b *history.Attempt) int { return a.Arrived.Compare(b.Arrived) })
	}
	return c
}

func (c *checker) count(r *history.Request) {
	k := bodyOf{r.Source, r.BodySHA256}
	f := c.sent[k]
	if f == nil {
		f = &fate{first: r}
		c.sent[k] = f
	}
	switch {
	case r.Acked():
		f.acked++
	case r.Refused():
		f.refused++
	default:
		f.open++
		c.report.Unanswered++
	}
}

func (c *checker) story(id string) *story {
	s := c.hooks[id]
	if s == nil {
		s = &story{}
		c.hooks[id] = s
		c.order = append(c.order, id)
	}
	return s
}

func (c *checker) fail(i Invariant, id, format string, args ...any) {
	c.report.Violations = append(c.report.Violations, Violation{i, id, fmt.Sprintf(format, args...)})
}
