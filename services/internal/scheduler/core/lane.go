package core

import (
	"slices"

	"ankusa.dev/services/internal/hook"
)

// lane is the deliveries of one ordered sink that share an ordering key. Only its head is claimed; the others stay in the
// store. It is held while its head is claimed or waits, and while it is being read.
//
// The next head is the lowest member of a snapshot. A member with a lower place that shows up later was acknowledged
// after those of the snapshot were received, so that either may go first: who has led once leads until its end.
//
// A lane that is not held is found again by the wake-up row of its head, which stands among the due rows once the head
// was attempted, or by the backlog's cursor.
type lane struct {
	backlog *backlog
	text    string
	head    *claim
	rows    []hook.Delivery // behind the head, read ahead in one snapshot
	more    bool            // the store has members behind them
	from    hook.Place      // where the next read begins
	asking  bool            // a read is to be sent with the next effects
	read    uint64          // the read under way; zero for none
	asked   hook.Timestamp  // when the last read was sent
	// named: members were named that the last read may have missed; again is the lowest of them.
	named bool
	again hook.Place
	// woken is when the wake-up row was due by which the lane was found; zero for none.
	woken hook.Timestamp
}

const (
	// readAhead is the members of a lane that are read at a time.
	readAhead = 16
	// lanesPerRead bounds the lanes of one read.
	lanesPerRead = 32
)

// laneID names a lane, held or not.
type laneID struct {
	partition uint8
	key       hook.SinkKey
	text      string
}

func laneOf(r *hook.Row) laneID { return laneID{r.Partition, r.Key, r.Lane} }

func (l *lane) id() laneID { return laneID{l.backlog.partition, l.backlog.key.id, l.text} }

// cursor pages through a backlog's lanes that are not held, in the order of their texts.
type cursor struct {
	open bool
	from string
	// again: lanes were named while a page was under way, which may have missed them; the lowest of them.
	again *string
}

// namedMembers takes the members of lanes that a writer has named.
func (c *Core) namedMembers(g *hook.Group) {
	k := c.key(g.Key)
	defer c.retire(k)
	b := k.backlog(g.Partition)
	for i, id := range g.Hooks {
		place, text := hook.Place{Start: g.Start, Index: g.Members[i]}, g.Lanes[i]
		switch l := b.lanes[text]; {
		case l != nil:
			c.name(l, hook.Ref{Hook: id, Sink: g.Key.Index}, place)
		case b.order.open && b.order.from <= text, !c.admits(k):
			c.seek(b, text)
		default:
			c.ask(c.holdLane(b, text, c.ended.from(laneID{b.partition, k.id, text}, place)))
		}
	}
}

// admits says whether one more row of the key can be claimed, by number.
func (c *Core) admits(k *sinkKey) bool { return k.scannable() && c.room(k.tenant) > 0 }

// name notes a member of a lane that is held, which the lane may not know of.
func (c *Core) name(l *lane, ref hook.Ref, place hook.Place) {
	if c.claims[ref] != nil || slices.ContainsFunc(l.rows, func(d hook.Delivery) bool { return d.Ref() == ref }) {
		return
	}
	if !l.named || place.Less(l.again) {
		l.named, l.again = true, place
	}
}

func earlier(a, b hook.Place) hook.Place {
	if b.Less(a) {
		return b
	}
	return a
}

func (c *Core) holdLane(b *backlog, text string, from hook.Place) *lane {
	l := &lane{backlog: b, text: text, from: from}
	if b.lanes == nil {
		b.lanes = make(map[string]*lane)
	}
	b.lanes[text] = l
	c.lanes++
	delete(c.ended.at, l.id()) // it holds for lanes without members alone
	return l
}

// drop holds a lane no longer.
func (c *Core) drop(l *lane) {
	if l.backlog.lanes[l.text] != l {
		return
	}
	delete(l.backlog.lanes, l.text)
	c.lanes--
	if l.asking || l.read != 0 {
		c.reserve(l.backlog.key.tenant, -1)
	}
	l.asking, l.read, l.rows = false, 0, nil
	if l.head != nil {
		l.head.lane, l.head = nil, nil
	}
}

// giveUp drops a lane that has members of which none can be claimed now.
func (c *Core) giveUp(l *lane) {
	c.drop(l)
	if l.woken != 0 {
		c.sleep(l.backlog, l.woken)
		return
	}
	c.seek(l.backlog, l.text)
}

// remain makes sure that a row which nobody holds is come by again.
func (c *Core) remain(b *backlog, r *hook.Row) {
	if r.Ordered && !r.Waits() {
		c.seek(b, r.Lane)
		return
	}
	c.sleep(b, r.Due)
}

// seek makes sure that the cursor comes by a lane.
func (c *Core) seek(b *backlog, text string) {
	if b.scanning && (b.order.again == nil || text < *b.order.again) {
		b.order.again = &text
	}
	if !b.order.open || text < b.order.from {
		b.order.open, b.order.from = true, text
	}
	c.update(b.key)
}

// ask has a lane read, for the row that it reserves.
func (c *Core) ask(l *lane) {
	if l.asking || l.read != 0 {
		return
	}
	l.asking = true
	c.reserve(l.backlog.key.tenant, 1)
	c.asking = append(c.asking, l)
}

// sendAsked sends the reads that lanes have asked for.
func (c *Core) sendAsked() {
	var r *LaneRead
	for _, l := range c.asking {
		if !l.asking {
			continue
		}
		if r == nil || len(r.Lanes) == lanesPerRead {
			c.out.LaneReads = append(c.out.LaneReads, LaneRead{ID: c.reads.begin(), Limit: readAhead})
			r = &c.out.LaneReads[len(c.out.LaneReads)-1]
		}
		if l.named {
			l.named, l.from = false, earlier(l.from, l.again)
		}
		l.asking, l.read, l.asked = false, r.ID, c.now
		r.Lanes = append(r.Lanes, LaneFrom{l.backlog.partition, l.backlog.key.id, l.text, l.from})
	}
	clear(c.asking)
	c.asking = c.asking[:0]
}

// LanesRead answers a LaneRead with the rows of each lane, and the sources of the rows by source id.
func (c *Core) LanesRead(now hook.Timestamp, r LaneRead, found []hook.LaneRows, sources map[string]Source) {
	c.advance(now)
	if c.purgedMembers(r, found) {
		return
	}
	for i := range r.Lanes {
		if l := c.reading(&r, i); l != nil {
			c.source(l.backlog.key, sources)
			l.learn(&found[i])
			if l.head == nil {
				c.lead(l)
			}
		}
	}
	c.laneReadEnded(&r)
}

// LanesNotRead answers a LaneRead that the store did not.
func (c *Core) LanesNotRead(now hook.Timestamp, r LaneRead) {
	c.advance(now)
	if c.notPurged(r.ID) {
		return
	}
	for i := range r.Lanes {
		l := c.reading(&r, i)
		if l == nil {
			continue
		}
		c.hesitate(l.backlog.key)
		if l.more = true; l.head == nil {
			c.giveUp(l)
		}
	}
	c.laneReadEnded(&r)
}

// reading ends a lane's wait for a read; nil where the lane does not wait for it any more.
func (c *Core) reading(r *LaneRead, i int) *lane {
	from := &r.Lanes[i]
	k := c.keys[from.Key]
	if k == nil {
		return nil
	}
	l := k.backlog(from.Partition).lanes[from.Lane]
	if l == nil || l.read != r.ID {
		return nil
	}
	l.read = 0
	c.reserve(k.tenant, -1)
	return l
}

func (c *Core) laneReadEnded(r *LaneRead) {
	c.endRead(r.ID)
	for i := range r.Lanes {
		if k := c.keys[r.Lanes[i].Key]; k != nil {
			c.update(k)
			c.retire(k)
		}
	}
}

// learn takes what a read found. What was committed after it has a higher place than the next read begins at, or is
// named.
func (l *lane) learn(found *hook.LaneRows) {
	l.rows, l.more = found.Rows, found.More
	l.from = hook.Place{Start: l.asked.Add(-finality)}
	if n := len(l.rows); l.more && n > 0 {
		l.from = earlier(l.from, l.rows[n-1].Place)
	}
	if i := slices.IndexFunc(l.rows, func(d hook.Delivery) bool { return d.Waits() }); i > 0 {
		waits := l.rows[i]
		copy(l.rows[1:], l.rows[:i])
		l.rows[0] = waits
	}
}

// strike takes a delivery out of what was read ahead.
func (l *lane) strike(ref hook.Ref) {
	l.rows = slices.DeleteFunc(l.rows, func(d hook.Delivery) bool { return d.Ref() == ref })
}

// lead has the lane's next member become its head.
func (c *Core) lead(l *lane) {
	if c.hushed(l) {
		return
	}
	for len(l.rows) > 0 {
		d := l.rows[0]
		l.rows = l.rows[1:]
		switch known := c.claims[d.Ref()]; {
		case known == nil:
			c.leadBy(l, &d)
			return
		case known.state != settled:
			c.attach(l, known)
			return
		case known.remains: // found again once it is forgotten
			c.drop(l)
			return
		}
	}
	switch {
	case !l.more && !l.named:
		c.ended.put(l.id(), l.from.Start)
		c.drop(l)
	case c.admits(l.backlog.key):
		c.ask(l)
	default:
		l.woken = 0
		c.giveUp(l)
	}
}

// leadBy claims a member as the head, if it can be claimed now.
func (c *Core) leadBy(l *lane, d *hook.Delivery) {
	b := l.backlog
	switch {
	case l.woken != 0 && b.key.parked != 0 && d.Waits() && c.outlived(b, d):
		l.woken = 0
		cl := c.hold(d.Row, ready)
		cl.Delivery = *d
		c.attach(l, cl)
		c.enwindowAs(cl, 0) // nobody reads its body
		c.expire(cl)
	case d.Due > c.now && d.Waits(), !c.gate.open && d.Version <= c.bump, !c.admits(b.key):
		c.drop(l)
		c.remain(b, &d.Row)
	default:
		l.woken = 0
		cl := c.hold(d.Row, ready)
		c.attach(l, cl)
		c.take(cl, d, nil)
	}
}

func (c *Core) attach(l *lane, cl *claim) { l.head, cl.lane = cl, l }

// attachAdopted has the row of an earlier term's lease lead its lane, unless another does.
func (c *Core) attachAdopted(cl *claim) {
	b := cl.key.backlog(cl.Partition)
	l := b.lanes[cl.Lane]
	if l == nil {
		l = c.holdLane(b, cl.Lane, hook.Place{})
		l.more = true
	}
	if l.head == nil {
		c.attach(l, cl)
	}
}

// passOn has the lane of a head that has ended go on.
func (c *Core) passOn(cl *claim) {
	if l := cl.key.backlog(cl.Partition).lanes[cl.Lane]; l != nil {
		l.strike(cl.Ref())
	}
	l := cl.lane
	if l == nil {
		return
	}
	l.head, cl.lane = nil, nil
	if l.read == 0 && !l.asking {
		c.lead(l)
	}
}

// rest lets go of what was read ahead, while the head waits. A head that leads since it was attempted may have members
// before it.
func (l *lane) rest() {
	l.from = earlier(l.from, l.head.Place)
	if len(l.rows) > 0 {
		l.from = earlier(l.from, l.rows[0].Place)
	}
	l.rows, l.more = nil, true
}

// hush keeps a lane from moving on while a lease of its head that is not counted any more may go on.
func (c *Core) hush(r *hook.Row, until hook.Timestamp) {
	if !r.Ordered {
		return
	}
	id := laneOf(r)
	if c.hushes == nil {
		c.hushes = make(map[laneID]hook.Timestamp)
	}
	c.hushes[id] = max(c.hushes[id], until)
	c.timers.add(until, func(c *Core) {
		if c.hushes[id] != until {
			return
		}
		delete(c.hushes, id)
		if k := c.keys[id.key]; k != nil {
			l := k.backlog(id.partition).lanes[id.text]
			if l != nil && l.head == nil && l.read == 0 && !l.asking {
				c.lead(l)
			}
			c.retire(k)
		}
	})
}

func (c *Core) hushed(l *lane) bool {
	return len(c.hushes) > 0 && c.hushes[l.id()] > c.now
}

// maxEnded bounds the lanes that are remembered after their last member.
const maxEnded = 16384

// endedLanes remembers of lanes that have no member left from when on one could still turn up, so that the next read
// does not go over all that was deleted. It forgets the oldest.
type endedLanes struct {
	at    map[laneID]hook.Timestamp
	order []laneID
	next  int
}

func (e *endedLanes) put(id laneID, at hook.Timestamp) {
	if e.at == nil {
		e.at = make(map[laneID]hook.Timestamp)
	}
	if _, known := e.at[id]; !known {
		if len(e.order) < maxEnded {
			e.order = append(e.order, id)
		} else {
			delete(e.at, e.order[e.next])
			e.order[e.next] = id
			e.next = (e.next + 1) % maxEnded
		}
	}
	e.at[id] = at
}

// from is where the read of a lane begins in which a place was named.
func (e *endedLanes) from(id laneID, named hook.Place) hook.Place {
	if at, known := e.at[id]; known {
		return earlier(hook.Place{Start: at}, named)
	}
	return hook.Place{}
}
