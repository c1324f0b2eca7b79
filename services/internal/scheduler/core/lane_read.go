package core

import (
	"cmp"
	"slices"

	"ankusa.dev/services/internal/hook"
)

// ask has a lane read, for the row that it reserves.
func (c *Core) ask(l *lane) {
	if l.asking || l.read != 0 {
		return
	}
	c.unwaitTurn(l)
	l.asking = true
	c.reserve(l.backlog.key.tenant, 1)
	c.asking = append(c.asking, l)
}

// sendAsked sends the reads that lanes have asked for.
func (c *Core) sendAsked() {
	var r *LaneRead
	var of *backlog
	slices.SortStableFunc(c.asking, func(a, b *lane) int { return a.backlog.compare(b.backlog) })
	for _, l := range c.asking {
		if !l.asking {
			continue
		}
		if r == nil || l.backlog != of || len(r.Lanes) == lanesPerRead {
			of = l.backlog
			c.out.LaneReads = append(c.out.LaneReads, LaneRead{ID: c.reads.begin(), Limit: readAhead})
			r = &c.out.LaneReads[len(c.out.LaneReads)-1]
		}
		if l.named {
			l.named, l.from = false, earlier(l.from, l.again)
		}
		l.asking, l.read, l.asked = false, r.ID, c.now
		if l.dealt {
			l.dealt = false
			c.chargeLane(r.ID, of)
		}
		r.Lanes = append(r.Lanes, hook.LaneFrom{
			Partition: l.backlog.partition, Key: l.backlog.key.id, Lane: l.text, From: l.from,
		})
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
			c.source(l.backlog.key, sources, newest(found[i:i+1]))
			l.learn(&found[i])
			if l.head == nil {
				c.lead(l)
			}
		}
	}
	c.laneReadEnded(&r)
}

// newest is the last incarnation that a row of some lanes is bound to.
func newest(lanes []hook.LaneRows) (incarnation uint64) {
	for i := range lanes {
		for j := range lanes[i].Rows {
			incarnation = max(incarnation, lanes[i].Rows[j].Incarnation)
		}
	}
	return incarnation
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
	c.readEnded(l)
	return l
}

// compare orders backlogs by the creation of their keys.
func (b *backlog) compare(o *backlog) int {
	return cmp.Or(cmp.Compare(b.key.number, o.key.number), cmp.Compare(b.partition, o.partition))
}

func (c *Core) laneReadEnded(r *LaneRead) {
	c.endLaneRead(r.ID)
	c.endRead(r.ID)
	for i := range r.Lanes {
		if k := c.keys[r.Lanes[i].Key]; k != nil {
			c.update(k)
			c.retire(k)
		}
	}
}

// readEnded takes the reservation of a lane's read back.
func (c *Core) readEnded(l *lane) {
	if !l.asking && l.read == 0 {
		return
	}
	if l.dealt { // it was not sent yet
		l.dealt = false
		c.budget.rows--
	}
	l.asking, l.read = false, 0
	c.reserve(l.backlog.key.tenant, -1)
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
