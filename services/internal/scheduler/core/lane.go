package core

import (
	"slices"

	"ankusa.dev/services/internal/hook"
)

// lane is the deliveries of one ordered sink that share an ordering key. Only its head is claimed; the others stay in the
// store. It is held while its head is claimed or waits for another attempt, and until it has one.
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
	waits   bool            // for its turn to be read: see turns
	asking  bool            // a read is to be sent with the next effects
	dealt   bool            // the read is to be charged to the page
	read    uint64          // the read under way; zero for none
	asked   hook.Timestamp  // when the last read was sent
	// named: members were named that the last read may have missed; again is the lowest of them.
	named bool
	again hook.Place
	// woken is when the wake-up row was due by which the lane was found; zero for none.
	woken hook.Timestamp
}

// followed says whether there may be a member behind the head.
func (l *lane) followed() bool {
	return len(l.rows) > 0 || l.more || l.named || l.asking || l.waits || l.read != 0
}

const (
	// readAhead is the members of a lane that are read at a time.
	readAhead = 32
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
		case c.turns >= maxTurns:
			c.seek(b, text)
		default:
			l = c.holdLane(b, text, c.ended.from(laneID{b.partition, k.id, text}, place))
			if b.order.open || b.turns.n > 0 || !c.admits(k) {
				c.waitTurn(l)
				continue
			}
			c.ask(l)
		}
	}
}

// admits says whether one more row of the key can be asked for, by number; finds, whether one that was found can be claimed.
func (c *Core) admits(k *sinkKey) bool { return k.scannable() && c.room(k.tenant) > 0 }
func (c *Core) finds(k *sinkKey) bool  { return k.scannable() && c.free(k.tenant) > 0 }

// name notes a member of a lane that is held, which the lane may not know of.
func (c *Core) name(l *lane, ref hook.Ref, place hook.Place) {
	if c.claims[ref] != nil || slices.ContainsFunc(l.rows, func(d hook.Delivery) bool { return d.Ref() == ref }) {
		return
	}
	l.note(place)
}

// note has members from a place on be read before the lane ends.
func (l *lane) note(place hook.Place) {
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
	c.ended.forget(l.id()) // it holds for lanes without members alone
	return l
}

// drop holds a lane no longer.
func (c *Core) drop(l *lane) {
	if l.backlog.lanes[l.text] != l {
		return
	}
	delete(l.backlog.lanes, l.text)
	c.lanes--
	c.readEnded(l)
	c.unwaitTurn(l)
	l.rows = nil
	if l.head != nil {
		l.head.lane, l.head = nil, nil
	}
}

// idle says whether the lane has no head, and nothing is under way to find one.
func (l *lane) idle() bool { return l.head == nil && l.read == 0 && !l.asking && !l.waits }

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

// strike takes a delivery out of what was read ahead. Mostly it stands before all of that, and needs no search.
func (l *lane) strike(r *hook.Row) {
	if len(l.rows) == 0 || r.Place.Less(l.rows[0].Place) {
		return
	}
	ref := r.Ref()
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
	case c.admits(l.backlog.key) && !c.contended(l.backlog.key.tenant):
		c.ask(l)
	default:
		c.waitTurn(l)
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
	case d.Waits() && (d.Due > c.now || !c.finds(b.key)):
		c.drop(l)
		c.sleep(b, d.Due)
	case !c.gate.open && d.Version <= c.bump, !c.finds(b.key):
		l.rows = append([]hook.Delivery{*d}, l.rows...)
		c.waitTurn(l)
	default:
		l.woken = 0
		cl := c.hold(d.Row, ready)
		c.attach(l, cl)
		c.take(cl, d, nil)
	}
}

func (c *Core) attach(l *lane, cl *claim) {
	c.unwaitTurn(l)
	l.head, cl.lane = cl, l
}

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
		l.strike(&cl.Row)
	}
	l := cl.lane
	if l == nil {
		return
	}
	l.head, cl.lane = nil, nil
	if l.idle() {
		c.lead(l)
	}
}

// rest lets go of what was read ahead, while the head waits. A head that leads since it was attempted may have members
// before it.
func (l *lane) rest() {
	l.from = earlier(l.from, l.head.Place)
	l.forgetRows()
}

// forgetRows has what was read ahead be read again.
func (l *lane) forgetRows() {
	if len(l.rows) > 0 {
		l.from = earlier(l.from, l.rows[0].Place)
	}
	l.rows, l.more = nil, true
}
