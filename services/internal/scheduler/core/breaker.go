package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// Breakers say when a destination is left alone. Failures, BreakerOpen and BreakerMaxOpen are the operator's.
type Breakers struct {
	Failures      int           // in a row that open a breaker; 0 turns breakers off
	Open, MaxOpen time.Duration // how long at first, and at most; it doubles per failed probe
}

type breakerState uint8

const (
	closed breakerState = iota
	open
	halfOpen // one attempt at a time, until one ends with a verdict
)

// breaker is a key's. A permanent failure does not count, since the destination answered.
type breaker struct {
	state    breakerState
	failures int // in a row
	opens    int // in a row
	probe    *claim
}

// pace bounds the attempts of a key at once, below its cap. A key that begins gently doubles its limit per success; one
// that was throttled gets one more per successesPerStep. Attempts that had begun before say nothing about it.
type pace struct {
	limit     int // 0 is none
	gentle    bool
	successes int
	since     uint64 // the last lease before the pace was set
}

const successesPerStep = 20

// begin makes the key start with one attempt.
func (c *Core) begin(k *sinkKey) { k.pace = pace{limit: 1, gentle: true, since: c.nextLease} }

// halve bounds the key to half of what it ran.
func (c *Core) halve(k *sinkKey, running int) {
	if k.pace.limit > 0 {
		running = min(running, k.pace.limit)
	}
	k.pace = pace{limit: max(1, running/2), since: c.nextLease}
}

// paced says whether an attempt began under the pace that its key has now.
func (c *Core) paced(cl *claim) bool {
	return cl.lease.Epoch == c.epoch && cl.lease.ID > cl.key.pace.since
}

// succeed lets the key run more, and ends the bound at its cap.
func (p *pace) succeed(most int) {
	if p.limit == 0 {
		return
	}
	p.successes++
	switch {
	case p.gentle:
		p.limit *= 2
	case p.successes >= successesPerStep:
		p.limit, p.successes = p.limit+1, 0
	}
	if p.limit >= most {
		*p = pace{since: p.since}
	}
}

// most is the cap on a key's attempts at once.
func (c *Core) most(k *sinkKey) int {
	if k.batches {
		return c.mostBatched()
	}
	if c.cfg.SinkConcurrency > 0 {
		return c.cfg.SinkConcurrency
	}
	return max(1, c.concurrency())
}

// startable says whether the key may start one more attempt now.
func (c *Core) startable(k *sinkKey) bool {
	switch {
	case k.stalled || k.parked != 0 || !k.batches && c.cfg.SinkConcurrency > 0 && k.running >= c.cfg.SinkConcurrency:
		return false
	case k.breaker.state == halfOpen:
		return k.breaker.probe == nil
	default:
		return k.pace.limit == 0 || k.running < k.pace.limit
	}
}

// scannable says whether rows of the key may be looked for now.
func (k *sinkKey) scannable() bool { return k.hesitates == 0 && !k.doomed && k.claimable() }

// claimable says whether rows of the key may be claimed now.
func (k *sinkKey) claimable() bool {
	return k.parked == 0 && (k.breaker.state != halfOpen || k.breaker.probe == nil && k.queue.len() == 0)
}

// judge takes what an attempt says about its destination.
func (c *Core) judge(cl *claim, o *hook.Outcome) {
	k := cl.key
	probe := k.breaker.probe == cl
	if probe {
		k.breaker.probe = nil
	}
	switch o.Class {
	case hook.Delivered:
		c.answered(k, probe)
		if c.paced(cl) {
			k.pace.succeed(c.most(k))
		}
	case hook.Permanent, hook.PermanentConfig:
		if probe {
			c.answered(k, probe)
		}
	case hook.Transient, hook.Throttled, hook.TimedOut:
		c.failed(k, probe)
		c.throttled(cl, o)
	}
	c.update(k)
}

func (c *Core) answered(k *sinkKey, probe bool) {
	k.breaker.failures = 0
	if probe && k.breaker.state == halfOpen {
		c.shutBreaker(k)
	}
}

// shutBreaker closes the breaker of a key, which begins gently.
func (c *Core) shutBreaker(k *sinkKey) {
	if k.breaker.state != closed {
		c.opened--
		c.breakerEvent(k, hook.EventBreakerClosed)
	}
	k.breaker = breaker{}
	c.begin(k)
}

// release ends the pause of a key, and closes its breaker.
func (c *Core) release(k *sinkKey) {
	if k.parked == 0 && k.breaker.state == closed {
		return
	}
	k.parked = 0
	c.shutBreaker(k)
	c.update(k)
	c.retire(k)
}

// period is how long a breaker stays open that has opened a number of times in a row before.
func (b Breakers) period(opens int) time.Duration {
	period := b.Open
	for ; opens > 0 && period < b.MaxOpen; opens-- {
		period *= 2
	}
	return min(period, b.MaxOpen)
}

func (c *Core) failed(k *sinkKey, probe bool) {
	b := &k.breaker
	b.failures++
	if c.cfg.Breakers.Failures == 0 || b.state == open || b.state == halfOpen && !probe ||
		b.state == closed && b.failures < c.cfg.Breakers.Failures {
		return
	}
	if b.state == closed {
		c.opened++
	}
	b.state = open
	b.opens++
	c.breakerEvent(k, hook.EventBreakerOpened)
	c.park(k, c.now.Add(c.cfg.Breakers.period(b.opens-1)))
}

// throttled leaves a destination that asked for a pause alone until then, and runs at half of what it ran from there.
// A burst of such answers is one wish.
func (c *Core) throttled(cl *claim, o *hook.Outcome) {
	if o.Class != hook.Throttled {
		return
	}
	k := cl.key
	if c.paced(cl) {
		c.halve(k, k.running+1)
	}
	if wait := min(o.RetryAfter, k.policy().MaxRetryAfter); wait > 0 {
		c.park(k, max(k.parked, c.now.Add(wait)))
	}
}

func (c *Core) breakerEvent(k *sinkKey, kind hook.EventKind) {
	c.out.Events = append(c.out.Events, hook.Event{Kind: kind, At: c.now, Key: k.id})
}

// park leaves the key alone until a time: what it has claimed and not begun goes back to the store as it is, unwritten,
// and nothing of it is scanned or begun. Only rows past their horizon are looked for.
func (c *Core) park(k *sinkKey, until hook.Timestamp) {
	if k.parked >= until {
		return
	}
	k.parked = until
	for cl := k.pop(); cl != nil; cl = k.pop() {
		c.leave(cl)
	}
	for _, w := range []*window{&c.window, &k.tenant.window} {
		if cl := w.next; cl != nil && cl.key == k {
			c.unqueue(cl)
			c.leave(cl)
		}
	}
	c.update(k)
	for _, b := range k.backlogs {
		c.watchHorizon(b)
	}
	c.timers.add(until, func(c *Core) { c.unpark(k, until) })
}

func (c *Core) unpark(k *sinkKey, until hook.Timestamp) {
	if k.parked != until {
		return
	}
	k.parked = 0
	if k.breaker.state == open {
		k.breaker.state = halfOpen
		c.breakerEvent(k, hook.EventBreakerHalfOpen)
	}
	c.update(k)
	c.retire(k)
}

// Revised closes the breakers of a source's keys and ends their pauses: whoever changed it wants to see it tried.
func (c *Core) Revised(now hook.Timestamp, sourceID string) {
	c.advance(now)
	for _, k := range c.sortedKeys() {
		if k.id.SourceID == sourceID {
			c.release(k)
		}
	}
}

// watchHorizon has a parked key's rows looked through when the first of them is past its horizon. Behind a breaker
// every row's horizon runs from its due time, so that the order of the rows is that of their ends.
func (c *Core) watchHorizon(b *backlog) {
	horizon := b.key.policy().Horizon
	if !b.open || horizon <= 0 {
		return
	}
	at := b.from.Add(horizon) + 1
	if b.watched != 0 && b.watched <= at {
		return
	}
	b.watched = at
	c.timers.add(at, func(c *Core) {
		if b.watched != at {
			return
		}
		b.watched = 0
		if b.key.parked != 0 && b.open && !b.scanning {
			b.sweeping = true
			c.update(b.key)
		}
	})
}

// sweep ends a row of a parked key that is past its horizon; false at the first that is not.
func (c *Core) sweep(b *backlog, d *hook.Delivery) bool {
	if !c.outlived(b, d) {
		b.from, b.after = d.Due, hook.ID{}
		return false
	}
	if d.Ordered {
		c.wakeLane(b, d)
		return true
	}
	cl := c.meet(b, d)
	cl.Delivery = *d
	c.enwindowAs(cl, 0) // nobody reads its body
	c.expire(cl)
	return true
}

// outlived says whether a row of a parked key is past its horizon.
func (c *Core) outlived(b *backlog, d *hook.Delivery) bool {
	return c.now > d.Due.Add(b.key.policy().Horizon)
}
