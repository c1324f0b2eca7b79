package core

import "ankusa.dev/services/internal/hook"

// cursor pages through a backlog's lanes that are not held, in the order of their texts.
type cursor struct {
	open bool
	from string
	// again: lanes were named that the cursor has passed, or whose page was under way; the lowest of them. It comes by
	// them on its next round, so that low ones do not keep it from high ones.
	again *string
}

// seek makes sure that the cursor comes by a lane.
func (c *Core) seek(b *backlog, text string) {
	o := &b.order
	switch {
	case !o.open:
		o.open, o.from = true, text
		if b.scanning {
			o.again = &text // the page under way may close it
		}
	case (b.scanning || text < o.from) && (o.again == nil || text < *o.again):
		o.again = &text
	}
	c.update(b.key)
}

func (c *Core) scanLanes(b *backlog, limit int) {
	c.beginScan(b, limit)
	c.out.LaneScans = append(c.out.LaneScans, LaneScan{
		ID: c.reads.begin(), Partition: b.partition, Key: b.key.id, From: b.order.from, Limit: limit, Members: readAhead,
		asked: c.now,
	})
}

// LanesScanned answers a LaneScan. more says that the snapshot has lanes behind the page, from next on.
func (c *Core) LanesScanned(
	now hook.Timestamp, s LaneScan, found []hook.LaneRows, next string, more bool, sources map[string]Source,
) {
	c.advance(now)
	if c.purgedLanes(s, found, next, more) {
		return
	}
	b := c.scanEnded(s.Partition, s.Key)
	c.source(b.key, sources, newest(found))
	b.order.open, b.order.from = more, next
	for i := range found {
		if !c.metLane(b, &found[i], s.asked) {
			b.order.open, b.order.from = true, found[i].Lane
			break
		}
	}
	c.scanOver(b, s.ID)
}

// LanesNotScanned answers a LaneScan that the store did not: the backlog stays as it is.
func (c *Core) LanesNotScanned(now hook.Timestamp, s LaneScan) {
	c.advance(now)
	if c.notPurged(s.ID) {
		return
	}
	b := c.scanEnded(s.Partition, s.Key)
	c.hesitate(b.key)
	c.scanOver(b, s.ID)
}

// metLane takes a lane that the cursor came by, and says whether the next may be taken.
func (c *Core) metLane(b *backlog, found *hook.LaneRows, asked hook.Timestamp) bool {
	if l := b.lanes[found.Lane]; l != nil {
		for i := range found.Rows {
			c.name(l, found.Rows[i].Ref(), found.Rows[i].Place)
		}
		if n := len(found.Rows); found.More && n > 0 {
			l.note(found.Rows[n-1].Place)
		}
		return true
	}
	if !c.finds(b.key) {
		return false
	}
	l := c.holdLane(b, found.Lane, hook.Place{})
	l.asked = asked
	l.learn(found)
	c.lead(l)
	return true
}

// wakeLane reads the lane of a head that is due again. It had no member below when it first led, but a commit may have
// been under way then.
func (c *Core) wakeLane(b *backlog, d *hook.Delivery) {
	if l := b.lanes[d.Lane]; l != nil {
		if l.waits {
			l.woken = d.Due
			c.ask(l)
		}
		return
	}
	l := c.holdLane(b, d.Lane, hook.Place{Start: d.Place.Start.Add(-finality)})
	l.woken = d.Due
	c.ask(l)
}
