package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// finality is the age from which on a snapshot can gain no row any more: twice the bound of commits.
const finality = 10 * time.Second

// state of a claim.
type state uint8

const (
	// reading: named, its row is being read.
	reading state = iota + 1
	// ready: claimed, waits for a slot.
	ready
	// next: its windows have no room for its bytes yet; not claimed. See window.next.
	next
	// leased: a runner has it.
	leased
	// settling: its end is being committed.
	settling
	// waiting: remembered until it is due; not claimed.
	waiting
	// rereading: a runner did not find it; row and hook are being read anew.
	rereading
	// settled: ended, and kept only until every read that may still show it has been handled.
	settled
)

// claim is what the core holds of one delivery.
type claim struct {
	hook.Delivery
	key   *sinkKey
	state state
	order hook.Timestamp // see dueEntry; zero once ended

	// windowed: the row counts in the windows, with size.
	windowed bool
	size     int64

	// of the attempt
	lease    hook.Lease
	runner   *runner
	attempt  uint32
	leasedAt hook.Timestamp
	deadline hook.Timestamp
	before   *claim // in the list of leases
	behind   *claim

	loser    *runner // lost the last attempt, which is not settled yet
	accepted bool    // announced

	adopted   *adoption
	lane      *lane         // that it is the head of
	condemned *condemnation // that it ends by
	// late is a success that an earlier lease of the delivery reported.
	late *hook.Outcome
	// remains: the claim is over but its row stands, so that a scan must come by it.
	remains bool
	// seen: the scan that its backlog was opened with has come by the row; see backlog.need.
	seen bool
	// newer: the counters that its backlog was opened with may not have counted it.
	newer bool
}

// adoption is a lease of an earlier term, or its outcome, whose row is being read.
type adoption struct {
	runner  *runner
	lease   hook.Lease
	attempt uint32
	left    time.Duration
	outcome *hook.Outcome
}

// hold begins a claim in some state.
func (c *Core) hold(row hook.Row, s state) *claim {
	k := c.key(row.Key)
	k.claims++
	cl := &claim{Delivery: hook.Delivery{Row: row}, key: k, state: s}
	c.claims[row.Ref()] = cl
	b := k.backlog(row.Partition)
	cl.newer = b.newer(&row)
	b.track(cl)
	return cl
}

// forget ends a claim for good.
func (c *Core) forget(cl *claim) {
	c.unwindow(cl)
	cl.order = 0
	if c.claims[cl.Ref()] == cl {
		delete(c.claims, cl.Ref())
	}
	cl.key.claims--
	c.update(cl.key)
	c.retire(cl.key)
}

func (c *Core) enwindow(cl *claim) { c.enwindowAs(cl, int64(cl.Size)) }

func (c *Core) enwindowAs(cl *claim, size int64) {
	cl.windowed, cl.size = true, size
	c.window.add(cl.size)
	cl.key.tenant.window.add(cl.size)
	c.place(cl.key.tenant)
}

func (c *Core) unwindow(cl *claim) {
	if !cl.windowed {
		return
	}
	cl.windowed = false
	c.window.remove(cl.size)
	cl.key.tenant.window.remove(cl.size)
	c.place(cl.key.tenant)
}

// fits says whether a row of the key can be claimed by size.
func (c *Core) fits(k *sinkKey, size int64) bool {
	return c.window.fits(size) && k.tenant.window.fits(size)
}

// queueUp has a row that found no room be the next that its window claims; false where another one is.
func (c *Core) queueUp(cl *claim) bool {
	w := &c.window
	if !cl.key.tenant.window.fits(int64(cl.Size)) {
		w = &cl.key.tenant.window
	}
	if w.next != nil {
		return false
	}
	w.next, cl.state = cl, next
	c.place(cl.key.tenant)
	return true
}

// letIn claims the rows that were next, where there is room for them by now.
func (c *Core) letIn() {
	for c.window.ready() {
		c.admit(&c.window)
	}
	for c.admitting.n > 0 {
		c.admit(&c.admitting.next().window)
	}
}

// unqueue takes a row out of the windows that it is the next of.
func (c *Core) unqueue(cl *claim) {
	for _, w := range []*window{&c.window, &cl.key.tenant.window} {
		if w.next == cl {
			w.next = nil
		}
	}
	c.place(cl.key.tenant)
}

func (c *Core) admit(w *window) {
	cl := w.next
	c.unqueue(cl)
	switch {
	case c.fits(cl.key, int64(cl.Size)):
		c.enwindow(cl)
		c.bind(cl, c.now)
	case !c.queueUp(cl):
		c.leave(cl)
	}
}

// room is the number of rows of the tenant that could be asked for.
func (c *Core) room(t *tenant) int { return min(c.window.room(), t.window.room()) }

// free is the number of its rows that the answer to a scan could claim.
func (c *Core) free(t *tenant) int { return min(c.window.free(), t.window.free()) }

func (c *Core) reserve(t *tenant, n int) {
	c.window.reserved += n
	t.window.reserved += n
	c.place(t)
}

// enqueue claims a row that is due, or remembers one that is not yet.
func (c *Core) enqueue(cl *claim) {
	if cl.Due > c.now && cl.Due != cl.Version {
		c.wait(cl)
		return
	}
	if cl.key.parked != 0 {
		c.leave(cl)
		return
	}
	cl.state = ready
	cl.key.queue.push(cl)
	c.update(cl.key)
}

// wait remembers a row until it is due, or leaves it to a scan where too many are remembered.
func (c *Core) wait(cl *claim) {
	if c.waiting >= maxWaiting {
		c.leave(cl)
		return
	}
	c.unwindow(cl)
	c.waiting++
	cl.state = waiting
	if cl.lane != nil {
		c.blocked++
		cl.lane.rest()
	}
	due := cl.Due
	c.timers.add(due, func(c *Core) { c.wakeClaim(cl, due) })
}

// wakeClaim claims a remembered row whose time has come, or leaves it to a scan where the windows are full.
func (c *Core) wakeClaim(cl *claim, due hook.Timestamp) {
	if cl.state != waiting || cl.Due != due {
		return
	}
	c.unwait(cl)
	if !cl.key.claimable() || c.free(cl.key.tenant) == 0 || !c.fits(cl.key, int64(cl.Size)) {
		c.leave(cl)
		return
	}
	c.enwindow(cl)
	c.bind(cl, due) // one that is due on its horizon has its last attempt, however late the clock ticks
}

func (c *Core) unwait(cl *claim) {
	c.waiting--
	if cl.lane != nil {
		c.blocked--
	}
}

// dropEnded drops a claim whose row has ended.
func (c *Core) dropEnded(cl *claim) {
	c.unwindow(cl)
	cl.order = 0
	if !cl.seen && !cl.newer {
		cl.key.backlog(cl.Partition).passed++
	}
	c.entomb(cl)
	if cl.Ordered {
		c.passOn(cl)
		c.retire(cl.key)
	}
}

// leave drops a claim whose row stands; a scan will come by it when it is due.
func (c *Core) leave(cl *claim) {
	c.unwindow(cl)
	cl.remains = true
	c.unsee(cl)
	if cl.lane != nil {
		c.drop(cl.lane)
	}
	c.entomb(cl)
}

// entomb keeps a dropped claim while a read is under way that may still show its row as it was.
func (c *Core) entomb(cl *claim) {
	cl.state = settled
	if c.reads.outstanding() {
		c.reads.keep(cl)
		return
	}
	c.exhume(cl)
}

func (c *Core) exhume(cl *claim) {
	if cl.remains {
		c.remain(cl.key.backlog(cl.Partition), &cl.Row)
	}
	c.forget(cl)
}

// reads numbers the reads under way. A claim that ended is kept until all reads that began before are handled.
type reads struct {
	last   uint64
	open   map[uint64]bool
	oldest uint64
	tombs  []tomb
}

type tomb struct {
	until uint64
	claim *claim
}

func (r *reads) begin() uint64 {
	if r.open == nil {
		r.open = make(map[uint64]bool)
	}
	r.last++
	if len(r.open) == 0 {
		r.oldest = r.last
	}
	r.open[r.last] = true
	return r.last
}

func (r *reads) outstanding() bool { return len(r.open) > 0 }

func (r *reads) keep(cl *claim) { r.tombs = append(r.tombs, tomb{r.last, cl}) }

// end closes a read, and returns the claims that no read can show any more.
func (r *reads) end(id uint64) (gone []*claim) {
	delete(r.open, id)
	for r.oldest <= r.last && !r.open[r.oldest] {
		r.oldest++
	}
	n := 0
	for n < len(r.tombs) && r.tombs[n].until < r.oldest {
		gone = append(gone, r.tombs[n].claim)
		n++
	}
	r.tombs = r.tombs[n:]
	if len(r.tombs) == 0 {
		r.tombs = nil
	}
	return gone
}

func (c *Core) endRead(id uint64) {
	for _, cl := range c.reads.end(id) {
		c.exhume(cl)
	}
}
