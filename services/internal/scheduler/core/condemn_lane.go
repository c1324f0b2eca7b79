package core

import "ankusa.dev/services/internal/hook"

// laneWalk is how far the lanes of a place are read.
type laneWalk struct {
	begun bool
	from  string          // the next lane
	over  bool            // there is none
	deep  []hook.LaneFrom // lanes that go on behind what was read of them
}

// openLanes asks for the next lanes of a place, or for more of one of them.
func (c *Core) openLanes(d *condemnation, limit int) {
	p, w := &d.Places[0], &d.lanes
	read := c.beginPage(d, c.keys[p.Key], limit)
	if len(w.deep) > 0 {
		c.out.LaneReads = append(c.out.LaneReads, LaneRead{ID: read, Lanes: w.deep[:1:1], Limit: limit})
		return
	}
	members := min(readAhead, limit)
	c.out.LaneScans = append(c.out.LaneScans, LaneScan{
		ID: read, Partition: p.Partition, Key: p.Key, From: w.from, Limit: limit / members, Members: members,
	})
}

// purgedLanes takes the answer to a page of lanes; false where the scan is none of a condemnation.
func (c *Core) purgedLanes(s LaneScan, found []hook.LaneRows, next string, more bool) bool {
	return c.finishPage(s.ID, func(d *condemnation) {
		d.lanes.from, d.lanes.over = next, !more
		for i := range found {
			c.seizeLane(d, &found[i])
			if found[i].More {
				d.lanes.deep = append(d.lanes.deep, d.behind(&found[i]))
			}
		}
		c.walked(d)
	})
}

// purgedMembers takes the answer to a page of one lane; false where the read is none of a condemnation.
func (c *Core) purgedMembers(r LaneRead, found []hook.LaneRows) bool {
	return c.finishPage(r.ID, func(d *condemnation) {
		c.seizeLane(d, &found[0])
		if found[0].More {
			d.lanes.deep[0] = d.behind(&found[0])
		} else {
			d.lanes.deep = d.lanes.deep[1:]
		}
		c.walked(d)
	})
}

func (c *Core) seizeLane(d *condemnation, found *hook.LaneRows) {
	for i := range found.Rows {
		c.seize(d, &found.Rows[i])
	}
}

// behind is the rest of a lane that goes on behind the rows that were read of it.
func (d *condemnation) behind(found *hook.LaneRows) hook.LaneFrom {
	p, last := &d.Places[0], found.Rows[len(found.Rows)-1].Place
	return hook.LaneFrom{
		Partition: p.Partition, Key: p.Key, Lane: found.Lane, From: hook.Place{Start: last.Start, Index: last.Index + 1},
	}
}

// walked ends a place whose lanes are read.
func (c *Core) walked(d *condemnation) {
	if d.lanes.over && len(d.lanes.deep) == 0 {
		c.leavePlace(d)
	}
}
