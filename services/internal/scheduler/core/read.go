package core

import (
	"cmp"
	"slices"
	"time"

	"ankusa.dev/services/internal/hook"
)

// pause keeps the reads and scans of a key away from a store that has just failed one.
const pause = 200 * time.Millisecond

// Notified takes the rows that writers have named. As many as the windows allow are read; a scan will come by the rest.
func (c *Core) Notified(now hook.Timestamp, groups []hook.Group) {
	c.advance(now)
	var rows []hook.Row
	for i := range groups {
		if groups[i].Ordered {
			c.namedMembers(&groups[i])
			continue
		}
		rows = c.notified(&groups[i], rows)
	}
	c.read(rows, false)
}

func (c *Core) notified(g *hook.Group, rows []hook.Row) []hook.Row {
	k := c.key(g.Key)
	defer c.retire(k)
	b := k.backlog(g.Partition)
	if b.open && b.from <= g.Start || !k.scannable() || g.Start <= c.bump && !c.gate.open {
		c.lower(b, g.Start)
		return rows
	}
	for _, id := range g.Hooks {
		row := hook.Row{Partition: g.Partition, Key: g.Key, Hook: id, Due: g.Start, Version: g.Start}
		if _, known := c.claims[row.Ref()]; known {
			continue
		}
		if c.room(k.tenant) == 0 {
			c.lower(b, g.Start)
			return rows
		}
		c.hold(row, reading)
		c.reserve(k.tenant, 1)
		rows = append(rows, row)
	}
	return rows
}

// Backlog says that a key has rows from a time on that nobody named. rows is how many it has in all where the counters
// told, or zero. ordered says that some may be members of lanes, which are looked for from the first lane on. What the
// counters tell of members and of others cannot be told apart: so nothing would say that a row is missing which the
// position has passed, and such a key is scanned from its beginning. It has few due rows, unless it was not ordered before.
func (c *Core) Backlog(
	now hook.Timestamp, partition uint8, key hook.SinkKey, from hook.Timestamp, rows int64, ordered bool,
) {
	c.advance(now)
	b := c.key(key).backlog(partition)
	if rows > 0 && b.key.running == 0 {
		c.begin(b.key)
	}
	switch {
	case ordered && rows > 0:
		from = 0
	case rows > 0:
		c.expect(b, rows)
	}
	if ordered {
		c.seek(b, "")
	}
	c.lower(b, from)
}

// expect begins to count the rows that scans come by.
func (c *Core) expect(b *backlog, rows int64) {
	b.need, b.passed, b.since = rows, 0, c.now
	for _, e := range b.unsettled {
		if e.stands() {
			// The counters may know of a settle that the core has no answer to yet.
			e.claim.seen, e.claim.newer = false, b.newer(&e.claim.Row) || e.claim.state == settling
		}
	}
}

// newer says whether a row may have been committed after the counters were read. It errs that way: a needless scan is
// better than a row that is never found.
func (b *backlog) newer(row *hook.Row) bool {
	return row.Due == row.Version && row.Version > b.since.Add(-finality)
}

// begun says whether a row's first attempt came after the counters were read, or may have. If the counters knew it, it
// was counted before that attempt.
func (b *backlog) begun(s *hook.State) bool { return s.FirstAttemptAt > b.since.Add(-finality) }

// see counts a row that a scan came by. One that was left to another scan is counted there.
func (c *Core) see(b *backlog, cl *claim) {
	if cl.state == settled || cl.seen || cl.newer {
		return
	}
	cl.seen = true
	b.passed++
}

// unsee takes that back for a row that a scan must come by again, and will count again.
func (c *Core) unsee(cl *claim) {
	b := cl.key.backlog(cl.Partition)
	if cl.seen && !b.begun(&cl.State) {
		cl.seen = false
		b.passed--
	}
}

// exhausted ends a backlog that has no row left, or begins it again where rows are missing.
func (c *Core) exhausted(b *backlog) {
	short := b.passed < b.need
	b.open, b.need = false, 0
	if short {
		c.restarts++
		c.lower(b, 0)
	}
}

// readPage bounds the rows of one read.
const readPage = 256

// read asks for rows, those of each partition apart: one that is stuck holds up no other.
func (c *Core) read(rows []hook.Row, anew bool) {
	slices.SortStableFunc(rows, func(a, b hook.Row) int { return cmp.Compare(a.Partition, b.Partition) })
	for len(rows) > 0 {
		n := 1
		for n < min(len(rows), readPage) && rows[n].Partition == rows[0].Partition {
			n++
		}
		c.out.Reads = append(c.out.Reads, Read{ID: c.reads.begin(), Rows: rows[:n:n], Anew: anew})
		rows = rows[n:]
	}
}

// RowsRead answers a Read with one Found for each row, and the sources of the rows by source id.
func (c *Core) RowsRead(now hook.Timestamp, r Read, found []Found, sources map[string]Source) {
	c.advance(now)
	for i := range r.Rows {
		cl := c.claims[r.Rows[i].Ref()]
		switch {
		case cl == nil:
		case cl.state == reading && !r.Anew:
			c.found(cl, found[i], sources)
		case cl.state == rereading && r.Anew:
			c.foundAnew(cl, found[i], sources)
		}
	}
	c.endRead(r.ID)
}

// ReadFailed answers a Read that the store did not. Named rows are left to a scan, others are read again.
func (c *Core) ReadFailed(now hook.Timestamp, r Read) {
	c.advance(now)
	var again []hook.Row
	for i := range r.Rows {
		cl := c.claims[r.Rows[i].Ref()]
		switch {
		case cl == nil:
		case cl.state == rereading || cl.state == reading && cl.adopted != nil:
			again = append(again, r.Rows[i])
		case cl.state == reading:
			c.hesitate(cl.key)
			c.reserve(cl.key.tenant, -1)
			c.lower(cl.key.backlog(cl.Partition), cl.Due)
			c.forget(cl)
		}
	}
	c.endRead(r.ID)
	if len(again) > 0 {
		c.timers.add(c.now.Add(pause), func(c *Core) { c.read(again, r.Anew) })
	}
}

// hesitate keeps reads and scans of a key back for a moment, and has it begin gently then. Rows that are named meanwhile
// join its backlog. Other keys' rows may lie where the store is well.
func (c *Core) hesitate(k *sinkKey) {
	until := c.now.Add(pause)
	k.hesitates = until
	c.update(k)
	c.timers.add(until, func(c *Core) {
		if k.hesitates != until {
			return
		}
		k.hesitates = 0
		if k.running == 0 {
			c.begin(k)
		}
		c.update(k)
		c.retire(k)
	})
}

// found takes a named row. One that is not there may stand at another time, since an earlier leader wrote it back, and a
// scan may have passed it over for the claim: so another comes by.
func (c *Core) found(cl *claim, f Found, sources map[string]Source) {
	if cl.adopted != nil {
		c.foundAdopted(cl, f, sources)
		return
	}
	c.reserve(cl.key.tenant, -1)
	if f.Delivery == nil {
		c.leave(cl)
		return
	}
	c.take(cl, f.Delivery, sources)
}

// take claims a row as the store has it.
func (c *Core) take(cl *claim, d *hook.Delivery, sources map[string]Source) {
	cl.Delivery = *d
	c.source(cl.key, sources, d.Incarnation)
	switch {
	case cl.late != nil: // it has ended, and needs no room
		c.bind(cl, c.now)
	case c.fits(cl.key, int64(d.Size)):
		c.enwindow(cl)
		c.bind(cl, c.now)
	case !c.queueUp(cl):
		c.leave(cl)
	}
}

// source keeps what a read said of the key's source, as it was when the newest row of the read was bound to it or later.
// Answers come in any order: one that is older than what is known changes nothing.
func (c *Core) source(k *sinkKey, sources map[string]Source, bound uint64) {
	s, ok := sources[k.id.SourceID]
	switch {
	case !ok:
	case !s.Found:
		k.forsake(bound)
	case s.Incarnation > k.source.Incarnation, s.Incarnation == k.source.Incarnation && s.Revision >= k.source.Revision:
		k.source, k.stands = s, max(k.stands, s.Incarnation)
	}
}

// forsake takes note that an incarnation of the key's source is gone, as are those before it.
func (k *sinkKey) forsake(incarnation uint64) { k.stands = max(k.stands, incarnation+1) }

// bind checks a claimed row against its source as it is now and against its horizon at a time, and queues it.
func (c *Core) bind(cl *claim, at hook.Timestamp) {
	if late := cl.late; late != nil {
		cl.late = nil
		c.conclude(cl, *late)
		return
	}
	if c.condemns(cl) {
		c.execute(cl)
		return
	}
	s := &cl.key.source
	if !s.Found || s.Incarnation != cl.Incarnation || cl.Incarnation < cl.key.stands {
		c.conclude(cl, hook.Outcome{Class: hook.SourceGone, Reason: "source_gone"})
		return
	}
	if s.Policy.Expired(cl.State, at) {
		c.expire(cl)
		return
	}
	c.enqueue(cl)
}

// foundAnew decides about a row that a runner did not find.
func (c *Core) foundAnew(cl *claim, f Found, sources map[string]Source) {
	switch {
	case f.Delivery == nil:
		c.dropEnded(cl)
	case !f.Hook:
		cl.Delivery = *f.Delivery
		c.end(cl, hook.Verdict{Kind: hook.Discard, State: cl.State})
	default:
		cl.Delivery = *f.Delivery
		c.source(cl.key, sources, f.Delivery.Incarnation)
		c.bind(cl, c.now)
	}
}
