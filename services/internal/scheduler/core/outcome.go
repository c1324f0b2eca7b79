package core

import (
	"fmt"

	"ankusa.dev/services/internal/hook"
)

// Outcomes takes what a runner reports. A report whose lease is not the delivery's any more is acknowledged and
// forgotten, unless it is a success: that settles the delivery.
func (c *Core) Outcomes(now hook.Timestamp, id hook.RunID, reports []hook.Report) {
	c.advance(now)
	r := c.runners[id]
	if r == nil {
		return
	}
	for i := range reports {
		c.report(r, &reports[i])
	}
}

func (c *Core) report(r *runner, p *hook.Report) {
	if cl := r.leases[p.Lease]; cl != nil && cl.Ref() == p.Row.Ref() && cl.attempt == p.Attempt {
		c.ungive(cl)
		cl.runner = r
		c.conclude(cl, p.Outcome)
		return
	}
	cl := c.claims[p.Row.Ref()]
	if cl == nil || cl.state == settled {
		c.reportUnknown(r, p)
		return
	}
	if cl.adopted != nil && cl.adopted.lease == p.Lease && cl.adopted.runner.id == r.id {
		cl.adopted.outcome = &p.Outcome
		return
	}
	if cl.state == settling && cl.lease == p.Lease && cl.runner == r {
		return // reported again before it is settled
	}
	if p.Outcome.Class == hook.Delivered {
		c.succeed(cl, &p.Outcome)
	}
	c.ack(r, p.Lease)
}

// reportUnknown: an outcome of an earlier term applies if the row still stands in the version that it names. One of
// this term is about a row that has ended.
func (c *Core) reportUnknown(r *runner, p *hook.Report) {
	if p.Lease.Epoch >= c.epoch || c.standing(p.Row.Ref()) != nil {
		c.ack(r, p.Lease)
		return
	}
	c.adopt(r, p.Row, adoption{runner: r, lease: p.Lease, attempt: p.Attempt, outcome: &p.Outcome})
}

func (c *Core) ack(r *runner, l hook.Lease) {
	c.out.Acks = append(c.out.Acks, Ack{r.id, l})
}

// succeed settles a delivery whose success an earlier lease reports.
func (c *Core) succeed(cl *claim, o *hook.Outcome) {
	switch cl.state {
	case leased:
		c.hush(&cl.Row, cl.deadline)
		c.out.Drops = append(c.out.Drops, Drop{cl.runner.id, cl.lease})
		c.ungive(cl)
		cl.runner, cl.lease = nil, hook.Lease{}
		c.conclude(cl, *o)
	case ready:
		c.conclude(cl, *o)
	case next:
		c.unqueue(cl)
		c.conclude(cl, *o)
	case waiting:
		c.unwait(cl)
		c.conclude(cl, *o)
	default:
		cl.late = o
	}
}

// conclude decides what the end of an attempt does to its delivery.
func (c *Core) conclude(cl *claim, o hook.Outcome) {
	c.judge(cl, &o)
	at := cl.leasedAt
	if at == 0 {
		at = c.now
	}
	v := cl.key.policy().Decide(cl.State, o, at, c.now, c.random())
	if v.Kind == hook.Reread {
		c.acknowledge(cl)
		cl.state, cl.leasedAt = rereading, 0
		c.read([]hook.Row{cl.Row}, true)
		return
	}
	c.end(cl, v)
}

func (k *sinkKey) policy() hook.RetryPolicy {
	if k.source.Policy == (hook.RetryPolicy{}) {
		return hook.DefaultRetryPolicy()
	}
	return k.source.Policy
}

// expire ends a delivery that is past its horizon, without an attempt.
func (c *Core) expire(cl *claim) {
	class := hook.ErrorTransient
	if n := len(cl.History); n > 0 && cl.History[n-1].Class == hook.Throttled {
		class = hook.ErrorThrottled
	}
	c.end(cl, hook.Verdict{Kind: hook.Bury, State: cl.State, Reason: "retry_horizon", Class: class})
}

func (c *Core) end(cl *claim, v hook.Verdict) {
	cl.state = settling
	s := hook.Settlement{
		Delivery: cl.Delivery, Verdict: v, Position: c.position(cl.key.backlog(cl.Partition)), Claimed: cl.leasedAt,
	}
	if urgent(cl, &v) {
		c.out.Urgent = append(c.out.Urgent, s)
		return
	}
	c.out.Settles = append(c.out.Settles, s)
}

// fewRunning is the other attempts of a sink up to which those of its lanes are settled as they end. Where more run, their
// outcomes come so close to each other that the lanes gain nothing by it. Over many sinks the commits do not grow in
// number: what comes while one is under way makes up the next.
const fewRunning = 16

// urgent says whether a member behind waits for the row to be settled.
func urgent(cl *claim, v *hook.Verdict) bool {
	return cl.lane != nil && cl.lane.followed() && v.Kind != hook.Again && cl.key.running <= fewRunning
}

// Settled says that settles have been committed by a transaction that started at start.
func (c *Core) Settled(now hook.Timestamp, start hook.Timestamp, settles []hook.Settlement) {
	c.advance(now)
	c.advance(start)
	for i := range settles {
		cl := c.claims[settles[i].Delivery.Ref()]
		if cl == nil || cl.state != settling {
			continue
		}
		c.acknowledge(cl)
		cl.leasedAt = 0
		if v := &settles[i].Verdict; v.Kind == hook.Again {
			c.again(cl, v, start)
			continue
		}
		c.executed(cl)
		c.dropEnded(cl)
	}
}

// again goes on with a row that was written back.
func (c *Core) again(cl *claim, v *hook.Verdict, start hook.Timestamp) {
	cl.State, cl.Due, cl.Version = v.State, v.Due, start
	cl.key.backlog(cl.Partition).track(cl)
	if late := cl.late; late != nil {
		cl.late = nil
		c.conclude(cl, *late)
		return
	}
	if cl.Ordered && cl.lane == nil { // another leads
		c.leave(cl)
		return
	}
	c.wait(cl)
}

// acknowledge tells the runner, if one reported, that its outcome stands.
func (c *Core) acknowledge(cl *claim) {
	if cl.runner != nil {
		c.ack(cl.runner, cl.lease)
		c.done(cl.runner)
	}
	if r := cl.loser; r != nil {
		cl.loser = nil
		r.losses--
		c.done(r)
	}
	cl.runner, cl.lease = nil, hook.Lease{}
}

// expireLeases ends the attempts whose leases are over: they count as timed out, whatever their runners do.
func (c *Core) expireLeases() {
	for cl := c.leases.first(); cl != nil && cl.deadline <= c.now; cl = c.leases.first() {
		if cl.runner.gone() {
			c.lose(cl)
			continue
		}
		c.out.Drops = append(c.out.Drops, Drop{cl.runner.id, cl.lease})
		c.revoke(cl, hook.Outcome{
			Class: hook.TimedOut, Reason: fmt.Sprintf("attempt_timeout %dms", c.cfg.AttemptTimeout.Milliseconds()),
			Duration: c.now.Sub(cl.leasedAt),
		})
	}
}

// revoke ends an attempt that its runner did not report.
func (c *Core) revoke(cl *claim, o hook.Outcome) {
	r := cl.runner
	c.ungive(cl)
	cl.runner, cl.lease = nil, hook.Lease{}
	c.conclude(cl, o)
	c.done(r)
}
