package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// dispatch starts attempts while there are slots: tenants in turn, and each tenant's keys in turn.
func (c *Core) dispatch() {
	c.unstall()
	for c.running < c.concurrency() && c.runnable.n > 0 && c.credit.n > 0 {
		k := c.runnable.next().ready.next()
		c.start(k, k.pop(), func(*claim) *runner { return c.runnerFor(k.id.Type) })
	}
	c.dispatchBatching()
}

// start leases a claim that was taken from its key's queue; without a runner the key waits until one has room.
func (c *Core) start(k *sinkKey, cl *claim, find func(*claim) *runner) {
	if cl == nil {
		c.update(k)
		return
	}
	r := find(cl)
	if r == nil {
		k.queue.unpop(cl)
		k.stalled = true
		c.stalled = append(c.stalled, k)
		c.update(k)
		return
	}
	if k.breaker.state == halfOpen {
		k.breaker.probe = cl
	}
	c.lease(cl, r)
}

// pop is the next claim of the key that still waits for a slot.
func (k *sinkKey) pop() *claim {
	for k.queue.len() > 0 {
		if cl := k.queue.pop(); cl.state == ready {
			return cl
		}
	}
	return nil
}

// runnerFor is the next runner in turn that has room and takes the sink type.
func (c *Core) runnerFor(sinkType string) *runner {
	for range c.credit.n {
		if r := c.credit.next(); r.types[sinkType] {
			return r
		}
	}
	return nil
}

// unstall gives the keys that no runner took another chance, once a runner has more room than it had.
func (c *Core) unstall() {
	if !c.freed {
		return
	}
	c.freed = false
	stalled := c.stalled
	c.stalled = nil
	for _, k := range stalled {
		k.stalled = false
		if c.keys[k.id] == k {
			c.update(k)
		}
	}
}

func (c *Core) lease(cl *claim, r *runner) {
	c.nextLease++
	cl.attempt = cl.Attempts + 1
	c.give(cl, r, hook.Lease{Epoch: c.epoch, ID: c.nextLease}, c.cfg.AttemptTimeout+c.cfg.LeaseMargin)
	c.events(cl)
	c.out.Leases = append(c.out.Leases, Lease{
		Runner: r.id, Lease: cl.lease, Delivery: cl.Delivery, Attempt: cl.attempt, Source: cl.key.source,
	})
}

// give books an attempt with a runner.
func (c *Core) give(cl *claim, r *runner, ref hook.Lease, length time.Duration) {
	cl.state, cl.runner, cl.lease = leased, r, ref
	cl.leasedAt, cl.deadline = c.now, c.now.Add(length)
	r.leases[ref] = cl
	c.leases.insert(cl)
	c.count(cl, 1)
}

// ungive ends an attempt's booking.
func (c *Core) ungive(cl *claim) {
	delete(cl.runner.leases, cl.lease)
	c.leases.remove(cl)
	c.count(cl, -1)
}

func (c *Core) count(cl *claim, n int) {
	k := cl.key
	k.running += n
	if !k.batches {
		c.running += n
		k.tenant.running += n
	}
	c.update(k)
	c.burden(k, cl.runner, n, int64(n)*int64(cl.Size))
}

// burden counts what a runner works on.
func (c *Core) burden(k *sinkKey, r *runner, n int, size int64) {
	c.freed = c.freed || n < 0
	if k.batches {
		r.rows += n
		r.bytes += size
		return
	}
	r.running += n
	c.credit.set(&r.credit, r.room())
}

func (c *Core) events(cl *claim) {
	if c.unwatched {
		return
	}
	e := hook.Event{At: c.now, Key: cl.Key, Hook: cl.Hook}
	if cl.FirstAttemptAt == 0 && !cl.accepted {
		cl.accepted = true
		e.Kind = hook.EventAccepted
		e.At = cl.Version
		c.out.Events = append(c.out.Events, e)
	}
	e.Kind, e.At, e.Attempt = hook.EventLeased, c.now, cl.attempt
	c.out.Events = append(c.out.Events, e)
}
