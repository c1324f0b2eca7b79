package core

import (
	"math"
	"time"

	"ankusa.dev/services/internal/hook"
)

// overdue is how long a scan without an answer counts: what waits for a part of the store that is stuck must not keep
// others from theirs for longer.
const overdue = 200 * time.Millisecond

// PartitionReads is how many reads and scans of one partition may be under way at once: whoever drives the core admits no
// more. So with as many that have no answer nothing else of the partition could be read.
const PartitionReads = 16

// budget is the rows that scans and reads of lanes under way have asked for: at most dispatch.batch, without those that
// are overdue.
type budget struct {
	rows     int
	portions ring[*portion] // the oldest first
	lanes    map[uint64]*portion
	overdue  int
	watched  bool // a timer looks for overdue ones
	late     [math.MaxUint8 + 1]lateness
}

// lateness is what a partition of the store has left without an answer.
type lateness struct {
	scans int            // that are overdue; a read of lanes counts as one
	held  ring[*backlog] // not scanned before one of them has ended
}

// portion is what one scan takes of the budget, or one read of lanes whose turn it was.
type portion struct {
	of    *backlog
	rows  int
	since hook.Timestamp
	place node[*portion]
	late  bool
	soft  bool // its rows are reserved in the windows until it is overdue; else that is done elsewhere, and for longer
}

// charge begins a portion, of rows that are not counted yet.
func (c *Core) charge(p *portion, b *backlog, rows int, soft bool) {
	p.of, p.rows, p.since, p.soft, p.late, p.place.value = b, rows, c.now, soft, false, p
	c.budget.portions.add(&p.place)
	c.tally(p, 1)
}

// chargeLane has a lane's row, which is counted, belong to the portion of its read.
func (c *Core) chargeLane(read uint64, b *backlog) {
	p := c.budget.lanes[read]
	if p == nil {
		if c.budget.lanes == nil {
			c.budget.lanes = make(map[uint64]*portion)
		}
		p = new(portion)
		c.budget.lanes[read] = p
		c.charge(p, b, 0, false)
	}
	p.rows++
}

// endLaneRead ends the portion of a read of lanes.
func (c *Core) endLaneRead(read uint64) {
	if p := c.budget.lanes[read]; p != nil {
		delete(c.budget.lanes, read)
		c.endPortion(p)
	}
}

// tally adds a portion to all that bounds it, or with sign -1 takes it away.
func (c *Core) tally(p *portion, sign int) {
	t := p.of.key.tenant
	t.scans += sign
	c.budget.rows += sign * p.rows
	rows := 0
	if p.soft {
		rows = sign * p.rows
	}
	c.window.soft += rows
	t.window.soft += rows
	c.reserve(t, rows)
}

func (c *Core) giveBack(p *portion) {
	c.budget.portions.remove(&p.place)
	c.tally(p, -1)
}

// giveBackOverdue takes from scans what they hold without an answer for long. An answer that comes late finds what room
// there is then.
func (c *Core) giveBackOverdue() {
	for c.budget.portions.n > 0 && c.budget.portions.head.value.since.Add(overdue) <= c.now {
		p := c.budget.portions.head.value
		c.giveBack(p)
		p.late = true
		c.budget.overdue++
		c.budget.late[p.of.partition].scans++
	}
}

// endPortion ends a scan's portion, and lets backlogs go on that waited for the partition: until one of them can be scanned
// now, or all where nothing is late there any more.
func (c *Core) endPortion(p *portion) {
	l := &c.budget.late[p.of.partition]
	if p.late {
		c.budget.overdue--
		l.scans--
	} else {
		c.giveBack(p)
	}
	for n := l.held.n; n > 0; n-- {
		b := l.held.head.value
		l.held.remove(&b.held)
		c.update(b.key)
		if l.scans > 0 && b.behind.in && b.key.tenant.hungry.in {
			return
		}
	}
}

// held says whether a backlog has to wait for its partition, and has it do so.
func (c *Core) held(b *backlog) bool {
	l := &c.budget.late[b.partition]
	if l.scans < PartitionReads {
		return false
	}
	l.held.add(&b.held)
	c.update(b.key)
	return true
}

// left is what can be asked for now.
func (c *Core) left() int { return c.cfg.Batch - c.budget.rows }

// cautious bounds what is asked for in a partition that has not answered: as much as would take the page with the rest of
// its places.
func (c *Core) cautious(b *backlog, limit int) int {
	if c.budget.late[b.partition].scans == 0 {
		return limit
	}
	return min(limit, max(1, c.cfg.Batch/PartitionReads))
}

// watchBudget looks again once the oldest scan is overdue.
func (c *Core) watchBudget() {
	if c.budget.watched || c.budget.portions.n == 0 {
		return
	}
	c.budget.watched = true
	c.timers.add(c.budget.portions.head.value.since.Add(overdue), func(c *Core) { c.budget.watched = false })
}
