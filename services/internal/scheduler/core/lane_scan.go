package core

import "ankusa.dev/services/internal/hook"

func (c *Core) scanLanes(t *tenant, b *backlog, limit int) {
	b.scanning, b.again, b.order.again = true, 0, nil
	c.scanned += limit
	c.reserve(t, limit)
	c.update(b.key)
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
	b := c.scanEnded(s.Partition, s.Key, s.Limit)
	c.source(b.key, sources)
	b.order.open, b.order.from = more, next
	for i := range found {
		if !c.metLane(b, &found[i], s.asked) {
			c.seek(b, found[i].Lane)
			break
		}
	}
	c.laneScanEnded(b, s.ID)
}

// LanesNotScanned answers a LaneScan that the store did not: the backlog stays as it is.
func (c *Core) LanesNotScanned(now hook.Timestamp, s LaneScan) {
	c.advance(now)
	if c.notPurged(s.ID) {
		return
	}
	b := c.scanEnded(s.Partition, s.Key, s.Limit)
	c.hesitate(b.key)
	c.laneScanEnded(b, s.ID)
}

func (c *Core) laneScanEnded(b *backlog, read uint64) {
	c.seeAgain(b)
	c.endRead(read)
	c.update(b.key)
	c.retire(b.key)
}

// metLane takes a lane that the cursor came by, and says whether the next may be taken.
func (c *Core) metLane(b *backlog, found *hook.LaneRows, asked hook.Timestamp) bool {
	if l := b.lanes[found.Lane]; l != nil {
		for i := range found.Rows {
			c.name(l, found.Rows[i].Ref(), found.Rows[i].Place)
		}
		return true
	}
	if !c.admits(b.key) {
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
	if b.lanes[d.Lane] != nil {
		return
	}
	l := c.holdLane(b, d.Lane, hook.Place{Start: d.Place.Start.Add(-finality)})
	l.woken = d.Due
	c.ask(l)
}
