package core

import (
	"cmp"
	"slices"
	"time"

	"ankusa.dev/services/internal/hook"
)

// runner is one run of a sink-runner. It is known until its leases have ended, connected or not.
type runner struct {
	id        hook.RunID
	types     map[string]bool
	limit     hook.Credit
	connected bool
	leaving   bool // said goodbye
	running   int  // attempts of this term, and those of earlier ones whose rows are being read
	leases    map[hook.Lease]*claim
	rows      int   // attempts of sinks that batch
	bytes     int64 // of their hooks
	losses    int   // leases that it was lost with, whose rows are not settled yet
	credit    node[*runner]
	lostAt    hook.Timestamp
}

// room says whether the runner can be given one more attempt.
func (r *runner) room() bool { return r.connected && !r.leaving && r.running < r.limit.Slots }

// gone says whether the runner was lost for longer than its grace.
func (r *runner) gone() bool { return !r.connected && r.leaving }

// held is the claims that the runner has, in the order of their leases.
func (r *runner) held() []*claim {
	held := make([]*claim, 0, len(r.leases))
	for _, cl := range r.leases {
		held = append(held, cl)
	}
	slices.SortFunc(held, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.lease.Epoch, b.lease.Epoch), cmp.Compare(a.lease.ID, b.lease.ID))
	})
	return held
}

// Hello is what a runner says when it connects.
type Hello struct {
	Types   []string
	Credit  hook.Credit
	Running []hook.Running
	Reports []hook.Report // outcomes that were not acknowledged
}

// Joined takes a runner's hello, the first or another. Leases of this term that it does not know never reached it, and
// go back. Leases of earlier terms stay with it if their rows stand as they were.
func (c *Core) Joined(now hook.Timestamp, id hook.RunID, h Hello) {
	c.advance(now)
	r := c.runners[id]
	if r == nil {
		r = &runner{id: id, leases: make(map[hook.Lease]*claim)}
		r.credit.value = r
		c.runners[id] = r
	}
	c.connect(r, h)
	known := make(map[hook.Lease]bool, len(h.Running)+len(h.Reports))
	for _, l := range h.Running {
		known[l.Lease] = true
		c.resume(r, l)
	}
	for i := range h.Reports {
		known[h.Reports[i].Lease] = true
		c.report(r, &h.Reports[i])
	}
	for _, cl := range slices.Backward(r.held()) {
		if !known[cl.lease] {
			c.retract(cl)
		}
	}
	c.greeted(id)
}

// RoomFor says whether a runner is known, or may be one more of at most limit.
func (c *Core) RoomFor(id hook.RunID, limit int) bool {
	return c.runners[id] != nil || len(c.runners) < limit
}

func (c *Core) connect(r *runner, h Hello) {
	if !r.connected && c.slots == 0 {
		c.beginGently()
	}
	r.types = make(map[string]bool, len(h.Types))
	for _, t := range h.Types {
		r.types[t] = true
	}
	r.connected, r.leaving = true, false
	c.grant(r, h.Credit)
	c.fleet++
	c.credit.set(&r.credit, r.room())
	c.freed = true
	c.settleRings()
}

// grant sets what a runner can take: nothing while it is away or about to be.
func (c *Core) grant(r *runner, limit hook.Credit) {
	c.slots += limit.Slots - r.limit.Slots
	c.rows += limit.Rows - r.limit.Rows
	r.limit = limit
}

// resume goes on with a lease that the runner still works on.
func (c *Core) resume(r *runner, l hook.Running) {
	if r.leases[l.Lease] != nil {
		return
	}
	cl := c.standing(l.Row.Ref())
	if cl != nil && cl.adopted != nil && cl.adopted.lease == l.Lease && cl.adopted.runner.id == r.id {
		c.readopt(cl.key, cl.adopted, r, l.Left)
		return
	}
	if l.Lease.Epoch >= c.epoch || cl != nil {
		if cl != nil {
			c.hush(&cl.Row, c.now.Add(l.Left+c.cfg.LeaseMargin))
		}
		c.out.Drops = append(c.out.Drops, Drop{r.id, l.Lease})
		return
	}
	c.adopt(r, l.Row, adoption{runner: r, lease: l.Lease, attempt: l.Attempt, left: l.Left})
}

// standing is the claim of a delivery, unless it was left to a scan and is only remembered.
func (c *Core) standing(ref hook.Ref) *claim {
	if cl := c.claims[ref]; cl != nil && !(cl.state == settled && cl.remains) {
		return cl
	}
	return nil
}

// readopt goes on with a lease whose row is still being read, after another hello.
func (c *Core) readopt(k *sinkKey, a *adoption, r *runner, left time.Duration) {
	c.burden(k, a.runner, -1, 0)
	a.runner, a.left = r, left
	c.burden(k, r, 1, 0)
}

// adopt reads the row of an earlier term's lease.
func (c *Core) adopt(r *runner, row hook.Row, a adoption) {
	cl := c.hold(row, reading)
	cl.adopted = &a
	if row.Ordered {
		c.attachAdopted(cl)
	}
	c.burden(cl.key, r, 1, 0)
	c.read([]hook.Row{row}, false)
}

// foundAdopted decides about a lease of an earlier term: it stands if the row has the version and the attempts that it
// names.
func (c *Core) foundAdopted(cl *claim, f Found, sources map[string]Source) {
	a := cl.adopted
	cl.adopted = nil
	c.burden(cl.key, a.runner, -1, 0)
	second := cl.Ordered && cl.lane == nil && a.outcome == nil // its lane has gone on
	if second || f.Delivery == nil || f.Delivery.Version != cl.Version || f.Delivery.Attempts+1 != a.attempt {
		c.refuse(cl, a, f, sources)
		return
	}
	cl.Delivery = *f.Delivery
	c.enwindow(cl)
	c.source(cl.key, sources, f.Delivery.Incarnation)
	cl.attempt = a.attempt
	if a.outcome != nil {
		cl.runner, cl.lease, cl.leasedAt = a.runner, a.lease, c.now.Add(-a.outcome.Duration)
		c.conclude(cl, *a.outcome)
		return
	}
	c.give(cl, a.runner, a.lease, a.left+c.cfg.LeaseMargin)
	if c.runners[a.runner.id] != a.runner && !cl.Ordered {
		c.revoke(cl, hook.Outcome{Class: hook.Lost, Reason: "runner_lost"})
	}
}

// refuse takes an outdated lease back. Its row, if there is one, is left to a scan. One that is not where it was may stand
// at another time; a member of a lane keeps its place.
func (c *Core) refuse(cl *claim, a *adoption, f Found, sources map[string]Source) {
	if a.outcome != nil {
		c.ack(a.runner, a.lease)
	} else {
		c.hush(&cl.Row, c.now.Add(a.left+c.cfg.LeaseMargin))
		c.out.Drops = append(c.out.Drops, Drop{a.runner.id, a.lease})
	}
	switch {
	case f.Delivery == nil && cl.Ordered:
		c.dropEnded(cl)
		return
	case f.Delivery == nil:
		c.leave(cl)
		return
	}
	if a.outcome != nil && a.outcome.Class == hook.Delivered {
		cl.late = a.outcome
	}
	if cl.Ordered && cl.lane == nil && cl.late == nil {
		cl.Delivery = *f.Delivery
		c.leave(cl)
		return
	}
	c.take(cl, f.Delivery, sources)
}

// retract takes back a lease that never reached its runner: nothing was sent, and nothing counts.
func (c *Core) retract(cl *claim) {
	c.ungive(cl)
	cl.runner, cl.lease, cl.leasedAt = nil, hook.Lease{}, 0
	if cl.key.breaker.probe == cl {
		cl.key.breaker.probe = nil
	}
	if cl.key.parked != 0 {
		c.leave(cl)
		return
	}
	cl.state = ready
	cl.key.queue.unpop(cl)
	c.update(cl.key)
}

// Credit changes what a runner can take.
func (c *Core) Credit(now hook.Timestamp, id hook.RunID, limit hook.Credit) {
	c.advance(now)
	r := c.runners[id]
	if r == nil || !r.connected || r.leaving {
		return
	}
	c.grant(r, limit)
	c.credit.set(&r.credit, r.room())
	c.freed = true
	c.settleRings()
}

// Leaving gives the runner no more attempts and lets it go when it has reported those it has.
func (c *Core) Leaving(now hook.Timestamp, id hook.RunID) {
	c.advance(now)
	r := c.runners[id]
	if r == nil || !r.connected || r.leaving {
		return
	}
	r.leaving = true
	c.grant(r, hook.Credit{})
	c.fleet++
	c.credit.remove(&r.credit)
	c.settleRings()
	c.done(r)
}

// Lost notes that the runner's stream broke. It may come back within the grace; one that had said goodbye does not.
func (c *Core) Lost(now hook.Timestamp, id hook.RunID) {
	c.advance(now)
	r := c.runners[id]
	if r == nil || !r.connected {
		return
	}
	r.connected = false
	c.grant(r, hook.Credit{})
	c.fleet++
	c.credit.remove(&r.credit)
	c.settleRings()
	r.lostAt = c.now
	if r.leaving {
		c.abandon(r)
		return
	}
	lostAt := r.lostAt
	c.timers.add(c.now.Add(c.cfg.Grace), func(c *Core) {
		if !r.connected && r.lostAt == lostAt {
			c.abandon(r)
		}
	})
}

// abandon gives a lost runner's leases up, but for those of ordered rows, which it may still be at work on: they end at
// their deadlines. Its record goes when all of them are settled.
func (c *Core) abandon(r *runner) {
	r.leaving = true
	for _, cl := range r.held() {
		if !cl.Ordered {
			c.lose(cl)
		}
	}
	c.done(r)
}

// lose ends an attempt whose runner is lost.
func (c *Core) lose(cl *claim) {
	cl.loser = cl.runner
	cl.runner.losses++
	c.revoke(cl, hook.Outcome{Class: hook.Lost, Reason: "runner_lost"})
}

// done forgets a runner that is gone, holds nothing, and whose losses are settled.
func (c *Core) done(r *runner) {
	if r == nil || r.connected || !r.leaving || len(r.leases)+r.losses > 0 || c.runners[r.id] != r {
		return
	}
	delete(c.runners, r.id)
	c.out.Forget = append(c.out.Forget, r.id)
}

// gate keeps rows that an earlier leader may have leased until their runners have spoken, or their leases are over.
type gate struct {
	open    bool
	waiting map[hook.RunID]bool
}

func (c *Core) shut(known map[hook.RunID]time.Duration) {
	longest := time.Duration(0)
	for id, lease := range known {
		c.gate.waiting[id] = true
		longest = max(longest, lease)
	}
	if len(known) == 0 {
		c.gate.open = true
		return
	}
	c.timers.add(c.now.Add(longest), func(c *Core) {
		for id := range c.gate.waiting {
			c.out.Forget = append(c.out.Forget, id)
		}
		c.gate.open, c.gate.waiting = true, nil
	})
}

func (c *Core) greeted(id hook.RunID) {
	if c.gate.open {
		return
	}
	delete(c.gate.waiting, id)
	c.gate.open = len(c.gate.waiting) == 0
}
