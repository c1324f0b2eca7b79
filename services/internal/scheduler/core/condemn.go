package core

import (
	"math"

	"ankusa.dev/services/internal/hook"
)

// Condemnation is an order to dead-letter what a source has pending.
type Condemnation struct {
	ID       uint64
	SourceID string
	// At parts the rows that are condemned from those that came later.
	At hook.Timestamp
	// Places are where the source has rows. The core owns them.
	Places []Place
}

// Place is a partition in which a sink has rows.
type Place struct {
	Partition uint8
	Key       hook.SinkKey
	From      hook.Timestamp // no row is due before
	Rows      int64          // how many there are by the counters, or more
	Ordered   bool           // some may be members of lanes
}

// Purged says that a condemnation is carried out.
type Purged struct {
	ID   uint64
	Rows int // that it has dead-lettered
}

// condemnation goes through the places of a source page by page. A page is settled before the next is read, so that
// other settles never wait for more than one.
type condemnation struct {
	Condemnation
	count    int      // rows that were dead-lettered
	settling int      // rows that are being
	claimed  []*claim // rows that waited for a slot when the order came
	reading  bool     // a page is under way
	paused   bool     // the store failed a read, or a read is under way that hides a row

	// of the first place: how far its due rows are read, then its lanes
	begun bool
	from  hook.Timestamp
	after hook.ID
	lanes laneWalk
	met   int64 // rows that the counters knew of
	// hidden: there are rows that could not be told from rows that have ended.
	hidden bool
}

// purging is the condemnation that stands, if any, and the pages under way by their reads.
type purging struct {
	now   *condemnation
	pages map[uint64]page
}

// page is rows that are being read for a condemnation, which may have been pardoned meanwhile.
type page struct {
	of    *condemnation
	key   *sinkKey
	limit int // the room that is reserved
}

const (
	// purgePage bounds the rows of one page.
	purgePage = 256
	// never is later than all times.
	never = hook.Timestamp(math.MaxUint64)
)

// Condemned ends the rows of a source that are pending, whatever they wait for: parked, due or not. Those that a runner
// has are left to it. Nothing more of the source is claimed until that is done; what came later goes on then. An earlier
// condemnation must be over, or pardoned.
func (c *Core) Condemned(now hook.Timestamp, o Condemnation) {
	c.advance(now)
	d := &condemnation{Condemnation: o}
	d.arrive()
	c.purging.now = d
	for _, k := range c.markDoomed() {
		c.withdraw(d, k)
	}
}

// Pardoned gives a condemnation up. Rows whose end is being committed are not taken back.
func (c *Core) Pardoned(now hook.Timestamp, id uint64) {
	c.advance(now)
	d := c.purging.now
	if d == nil || d.ID != id {
		return
	}
	c.purging.now = nil
	c.markDoomed()
	for _, cl := range d.claimed {
		if cl.state == ready {
			c.enqueue(cl)
		}
	}
}

// markDoomed holds the keys of the source that is condemned, and lets all others go. It returns those that it holds.
func (c *Core) markDoomed() (doomed []*sinkKey) {
	for _, k := range c.sortedKeys() {
		if k.doomed = c.dooms(&k.id); k.doomed {
			doomed = append(doomed, k)
		}
		c.update(k)
		c.retire(k)
	}
	return doomed
}

// withdraw takes the rows of a key that wait for a slot, and are condemned, out of the turn.
func (c *Core) withdraw(d *condemnation, k *sinkKey) {
	var later []*claim
	for cl := k.pop(); cl != nil; cl = k.pop() {
		if c.condemns(cl) {
			d.claimed = append(d.claimed, cl)
		} else {
			later = append(later, cl)
		}
	}
	for _, cl := range later {
		k.queue.push(cl)
	}
	c.update(k)
}

func (c *Core) dooms(key *hook.SinkKey) bool {
	return c.purging.now != nil && c.purging.now.SourceID == key.SourceID
}

// Forsaken says that an incarnation of a source is gone: its rows end when they are claimed next.
func (c *Core) Forsaken(now hook.Timestamp, sourceID string, incarnation uint64) {
	c.advance(now)
	for _, k := range c.keys {
		if k.id.SourceID == sourceID {
			k.forsake(incarnation)
		}
	}
}

// condemns says whether a row ends with the source that it belongs to.
func (c *Core) condemns(cl *claim) bool {
	d := c.purging.now
	return d != nil && cl.Key.SourceID == d.SourceID && cl.Version <= d.At
}

// execute ends a claimed row that is condemned.
func (c *Core) execute(cl *claim) {
	cl.condemned = c.purging.now
	cl.condemned.settling++
	c.conclude(cl, hook.Outcome{Class: hook.SourceGone, Reason: "source_gone"})
}

// executed notes that the end of a row is committed. A lane that nobody holds is found by the wake-up of its head, which
// goes with the head.
func (c *Core) executed(cl *claim) {
	d := cl.condemned
	if d == nil {
		return
	}
	cl.condemned = nil
	d.settling--
	d.count++
	if cl.Waits() && cl.lane == nil {
		c.seek(cl.key.backlog(cl.Partition), cl.Lane)
	}
}

// arrive begins with the first place.
func (d *condemnation) arrive() {
	d.begun, d.after, d.lanes, d.met, d.hidden = false, hook.ID{}, laneWalk{}, 0, false
	if len(d.Places) > 0 {
		d.from = d.Places[0].From
	}
}

// purge asks for the next page, or tells that there is none. A place whose tenant has no room waits behind the others.
func (c *Core) purge() {
	d := c.purging.now
	if d == nil || d.paused || d.reading || d.settling > 0 || !c.gate.open {
		return
	}
	if c.endClaimed(d) {
		return
	}
	for range d.Places {
		if c.openPage(d) || d.begun {
			return
		}
		d.Places = append(d.Places[1:], d.Places[0])
		d.arrive()
	}
	if len(d.Places) == 0 {
		c.out.Purged = append(c.out.Purged, Purged{d.ID, d.count})
		c.purging.now = nil
		c.markDoomed()
	}
}

// openPage asks for a page of the first place; false where there is no room for one row.
func (c *Core) openPage(d *condemnation) bool {
	p := &d.Places[0]
	k := c.key(p.Key)
	limit := min(purgePage, c.room(k.tenant))
	if limit <= 0 {
		c.retire(k)
		return false
	}
	if d.begun = true; d.lanes.begun {
		c.openLanes(d, limit)
		return true
	}
	s := Scan{ID: c.beginPage(d, k, limit), Partition: p.Partition, Key: p.Key, From: d.from, After: d.after, Limit: limit}
	c.out.Scans = append(c.out.Scans, s)
	return true
}

// endClaimed ends a page of the rows that hold room. False when there is none.
func (c *Core) endClaimed(d *condemnation) bool {
	ended := 0
	for ; ended < purgePage && len(d.claimed) > 0; d.claimed = d.claimed[1:] {
		if cl := d.claimed[0]; cl.state == ready { // else it has ended otherwise
			c.execute(cl)
			ended++
		}
	}
	return ended > 0
}

// beginPage reserves room for the rows of a page, and numbers its read.
func (c *Core) beginPage(d *condemnation, k *sinkKey, limit int) (read uint64) {
	k.purges++
	d.reading = true
	c.reserve(k.tenant, limit)
	if c.purging.pages == nil {
		c.purging.pages = make(map[uint64]page)
	}
	read = c.reads.begin()
	c.purging.pages[read] = page{d, k, limit}
	return read
}

// finishPage takes the answer to a page, unless its condemnation was pardoned meanwhile. False where the read is no page.
func (c *Core) finishPage(read uint64, take func(*condemnation)) bool {
	p, known := c.purging.pages[read]
	if !known {
		return false
	}
	delete(c.purging.pages, read)
	c.reserve(p.key.tenant, -p.limit)
	if p.of.reading = false; p.of == c.purging.now {
		take(p.of)
	}
	c.endRead(read)
	p.key.purges--
	c.retire(p.key)
	return true
}

// purged takes the answer to a page; false where the scan is none.
func (c *Core) purged(s Scan, rows []hook.Delivery, more bool) bool {
	return c.finishPage(s.ID, func(d *condemnation) {
		for i := range rows {
			if !rows[i].Ordered { // else it is a wake-up, and the member stands in its lane
				c.seize(d, &rows[i])
			}
		}
		switch {
		case more:
			d.from, d.after = rows[len(rows)-1].Due, rows[len(rows)-1].Hook
		case d.Places[0].Ordered:
			d.lanes.begun = true
		default:
			c.leavePlace(d)
		}
	})
}

// notPurged takes note that the store did not answer; false where the read is no page.
func (c *Core) notPurged(read uint64) bool { return c.finishPage(read, c.pausePurge) }

// seize ends a row that a page shows, unless a runner has it or it has ended.
func (c *Core) seize(d *condemnation, row *hook.Delivery) {
	if row.Version > d.At {
		return
	}
	if !d.late(&row.Row) {
		d.met++
	}
	cl := c.claims[row.Ref()]
	switch {
	case cl == nil:
		cl = c.meet(c.key(row.Key).backlog(row.Partition), row)
		cl.Delivery = *row
	case cl.Version > d.At:
		return
	case cl.state == ready:
	case cl.state == next:
		c.unqueue(cl)
	case cl.state == waiting:
		c.unwait(cl)
	default:
		d.hidden = d.hidden || cl.hidden()
		return
	}
	if !cl.windowed {
		c.enwindowAs(cl, 0) // nobody reads its body
	}
	c.execute(cl)
}

// late says whether a row may have been committed after the counters were read, so that it must not stand for another. It
// errs that way: where a source has rows of the last seconds its place is gone through once more, from its beginning.
func (d *condemnation) late(row *hook.Row) bool {
	return row.Due == row.Version && row.Version > d.At.Add(-finality)
}

// hidden says whether it is for a read to tell what the claim's row is, while no runner has it.
func (cl *claim) hidden() bool {
	return cl.state == reading && cl.adopted == nil || cl.state == rereading || cl.state == settled && cl.remains
}

// leavePlace goes on to the next place, unless rows of this one are left: some that the counters know of and that are due
// before the place was said to begin, or some that other reads hide for a moment.
func (c *Core) leavePlace(d *condemnation) {
	p := &d.Places[0]
	switch {
	case d.met < p.Rows && p.From != 0:
		p.From = 0
	case d.hidden:
		p.Rows = 0
		c.pausePurge(d)
	default:
		d.Places = d.Places[1:]
	}
	d.arrive()
}

func (c *Core) pausePurge(d *condemnation) {
	d.paused = true
	c.timers.add(c.now.Add(pause), func(*Core) { d.paused = false })
}
