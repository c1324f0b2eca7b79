package core

import (
	"cmp"
	"container/heap"
	"slices"

	"ankusa.dev/services/internal/hook"
)

// tenant is one tenant that has work. It goes with its last key.
type tenant struct {
	id          string
	window      window
	concurrency int
	running     int
	keys        int
	scans       int            // of its backlogs, without an answer and not overdue
	ready       ring[*sinkKey] // keys with claims that could start
	behind      ring[*backlog] // backlogs that can be scanned
	runnable    node[*tenant]
	hungry      node[*tenant]
	served      node[*tenant]
	admitting   node[*tenant]
}

// sinkKey is one sink of one source for one tenant. It goes when nothing of it is claimed, waiting or left in the store.
type sinkKey struct {
	id       hook.SinkKey
	number   uint64 // in order of creation
	tenant   *tenant
	queue    queue[*claim] // claimed, waiting for a slot
	running  int
	claims   int  // in any state
	purges   int  // pages of condemnations under way
	doomed   bool // by a condemnation: nothing more of it is claimed
	source   Source
	stands   uint64 // incarnations of the source below are gone
	ready    node[*sinkKey]
	stalled  bool
	batches  bool
	batching node[*sinkKey]
	home     *runner        // that a batching key prefers
	fleet    uint64         // for which that was found
	parked   hook.Timestamp // nothing of it is begun before; zero for none
	// hesitates: the store failed a read, and is not asked for rows of the key before; zero for no.
	hesitates hook.Timestamp
	breaker   breaker
	pace      pace
	backlogs  []*backlog // one per partition that the key has rows in
}

// backlog is what a key has in one partition of the store that the core does not hold.
type backlog struct {
	key       *sinkKey
	partition uint8
	// rows may lie behind (from, after); only while open.
	open  bool
	from  hook.Timestamp
	after hook.ID
	asked hook.Timestamp // when rows were said to lie behind the beginning of all times
	// again: rows were named while a scan was under way, which may have missed them; the lowest of them.
	again hook.Timestamp
	// wake is when the first row that is not due yet becomes due; zero for none.
	wake      hook.Timestamp
	scanning  bool
	portion   portion        // of the page, for the scan under way
	sweeping  bool           // scanned only for rows past their horizon, since the key is parked
	watched   hook.Timestamp // when a sweep begins, if the key is parked then; zero for none
	behind    node[*backlog]
	held      node[*backlog] // waits for its partition: see lateness
	unsettled dueHeap
	// lanes are those that are held, order finds the others.
	lanes map[string]*lane
	order cursor
	turns turns
	kind  int // of the last scan: see Core.visit
	// need is the number of rows that the counters promised when the backlog was opened from a position; passed counts
	// those of them that scans came by or that ended without. Too few at the end, and the key is scanned again from its
	// beginning: a position can have passed rows whose writer could tell nobody of them in time.
	need, passed int64
	// since is when that was. Rows that may have been committed after the counters were read are not counted.
	since hook.Timestamp
}

func (c *Core) tenant(id string) *tenant {
	t, ok := c.tenants[id]
	if !ok {
		t = &tenant{id: id}
		t.runnable.value, t.hungry.value, t.served.value, t.admitting.value = t, t, t, t
		c.tenants[id] = t
		c.limit(t)
	}
	return t
}

// limit applies the settings to a tenant.
func (c *Core) limit(t *tenant) {
	l, ok := c.cfg.Tenants[t.id]
	if !ok {
		l = c.cfg.Default
	}
	t.window.maxRows, t.window.maxBytes, t.concurrency = l.MaxInflight, l.MaxInflightBytes, l.Concurrency
}

// allowed is the tenant's cap on attempts at once.
func (c *Core) allowed(t *tenant) int {
	if t.concurrency > 0 {
		return t.concurrency
	}
	return max(1, c.concurrency()/2)
}

func (c *Core) concurrency() int {
	if c.cfg.Concurrency > 0 {
		return min(c.cfg.Concurrency, c.slots)
	}
	return c.slots
}

func (c *Core) key(id hook.SinkKey) *sinkKey {
	k, ok := c.keys[id]
	if !ok {
		t := c.tenant(id.Tenant)
		t.keys++
		c.nextKey++
		k = &sinkKey{id: id, number: c.nextKey, tenant: t, batches: c.cfg.Batching[id.Type], doomed: c.dooms(&id)}
		k.ready.value, k.batching.value = k, k
		c.keys[id] = k
	}
	return k
}

// retire forgets a key that has nothing left, and its tenant with the last one.
func (c *Core) retire(k *sinkKey) {
	if k.claims > 0 || k.purges > 0 || k.parked != 0 || k.hesitates != 0 {
		return
	}
	for _, b := range k.backlogs {
		if b.open || b.scanning || b.wake != 0 || b.order.open || len(b.lanes) > 0 {
			return
		}
	}
	if c.keys[k.id] != k {
		return
	}
	if k.breaker.state != closed {
		c.opened--
	}
	delete(c.keys, k.id)
	for _, b := range k.backlogs {
		c.budget.late[b.partition].held.remove(&b.held)
	}
	k.tenant.ready.remove(&k.ready)
	c.batching.remove(&k.batching)
	c.place(k.tenant) // its queue may have held rows that have ended
	if k.tenant.keys--; k.tenant.keys == 0 {
		c.runnable.remove(&k.tenant.runnable)
		c.hungry.remove(&k.tenant.hungry)
		c.served.remove(&k.tenant.served)
		c.admitting.remove(&k.tenant.admitting)
		delete(c.tenants, k.tenant.id)
	}
}

func (k *sinkKey) backlog(partition uint8) *backlog {
	for _, b := range k.backlogs {
		if b.partition == partition {
			return b
		}
	}
	b := &backlog{key: k, partition: partition}
	b.behind.value, b.held.value = b, b
	k.backlogs = append(k.backlogs, b)
	return b
}

// beginning is before all rows; zero is none.
const beginning hook.Timestamp = 1

// lower makes sure that a scan will come by rows due at or after a time.
func (c *Core) lower(b *backlog, due hook.Timestamp) {
	due = max(due, beginning)
	if due == beginning && (!b.open || b.from > beginning) {
		b.asked = c.now
	}
	if b.scanning && (b.again == 0 || due < b.again) {
		b.again = due
	}
	if !b.open || due < b.from || due == b.from && b.after != (hook.ID{}) {
		b.open, b.from, b.after = true, due, hook.ID{}
	}
	if b.key.parked != 0 {
		c.watchHorizon(b)
	}
	c.update(b.key)
}

// sleep remembers that rows are due at a later time, which nobody holds.
func (c *Core) sleep(b *backlog, due hook.Timestamp) {
	if due <= c.now {
		c.lower(b, due)
		return
	}
	if b.wake != 0 && b.wake <= due {
		return
	}
	b.wake = due
	c.timers.add(due, func(c *Core) {
		if b.wake != due {
			return
		}
		b.wake = 0
		c.lower(b, due)
	})
}

// position is the time before which the key has no unsettled row in the partition, or zero. It stays behind the time
// from which on commits may still be under way.
func (c *Core) position(b *backlog) hook.Timestamp {
	at := c.now.Add(-finality)
	if lowest := b.unsettled.lowest(); lowest != 0 {
		at = min(at, lowest)
	}
	if b.open {
		at = min(at, b.from)
	}
	if b.wake != 0 {
		at = min(at, b.wake)
	}
	return at
}

// track keeps the due time of an unsettled claim.
func (b *backlog) track(c *claim) {
	c.order = c.Due
	heap.Push(&b.unsettled, dueEntry{c.Due, c})
	if n := len(b.unsettled); n > 64 && n > 4*b.key.claims {
		b.unsettled = slices.DeleteFunc(b.unsettled, func(e dueEntry) bool { return !e.stands() })
		heap.Init(&b.unsettled)
	}
}

// update puts a key and its tenant where they belong: among those that could start an attempt, and among those with
// rows to scan.
func (c *Core) update(k *sinkKey) {
	t := k.tenant
	startable := k.queue.len() > 0 && c.startable(k)
	t.ready.set(&k.ready, startable && !k.batches)
	c.batching.set(&k.batching, startable && k.batches)
	for _, b := range k.backlogs {
		due := b.open && (k.scannable() || b.sweeping && k.hesitates == 0)
		t.behind.set(&b.behind, !b.scanning && !b.held.in && (due || (b.order.open || b.turns.n > 0) && k.scannable()))
	}
	c.place(t)
}

func (c *Core) place(t *tenant) {
	c.runnable.set(&t.runnable, t.ready.n > 0 && t.running < c.allowed(t))
	c.hungry.set(&t.hungry, t.behind.n > 0 && t.window.room() > 0)
	c.served.set(&t.served, t.scans > 0 && !t.hungry.in)
	c.admitting.set(&t.admitting, t.window.ready())
}

// settleRings places every tenant anew, after a change of the settings or of the slots.
func (c *Core) settleRings() {
	for _, k := range c.sortedKeys() {
		c.update(k)
	}
}

// sortedKeys is all keys in order of creation, so that equal events have equal effects.
func (c *Core) sortedKeys() []*sinkKey {
	keys := make([]*sinkKey, 0, len(c.keys))
	for _, k := range c.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *sinkKey) int { return cmp.Compare(a.number, b.number) })
	return keys
}
