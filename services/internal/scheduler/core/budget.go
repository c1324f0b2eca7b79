package core

import (
	"math"
	"time"

	"ankusa.dev/services/internal/hook"
)

// overdue is how long a scan without an answer counts: what waits for a part of the store that is stuck must not keep
// others from theirs for longer.
const overdue = 200 * time.Millisecond

// PartitionReads is how many reads and scans of one partition may be under way at once: the driver admits no more. So
// with as many scans that have no answer nothing else of the partition could be read.
const PartitionReads = 16

// budget is the rows that scans under way have asked for: at most dispatch.batch, without those that are overdue.
type budget struct {
	rows     int
	portions ring[*portion] // the oldest first
	watched  bool           // a timer looks for overdue ones
	late     [math.MaxUint8 + 1]lateness
}

// lateness is what a partition of the store has left without an answer.
type lateness struct {
	scans int            // overdue
	held  ring[*backlog] // not scanned before one of them has ended
}

// portion is what one scan takes of the budget.
type portion struct {
	of    *backlog // nil: nothing
	rows  int
	since hook.Timestamp
	place node[*portion]
	late  bool
	soft  bool // its rows are reserved in the windows until it is overdue; else that is done elsewhere, and for longer
}

// charge takes rows of the budget for a scan of a backlog.
func (c *Core) charge(p *portion, b *backlog, rows int, soft bool) {
	p.of, p.rows, p.since, p.soft, p.place.value = b, rows, c.now, soft, p
	c.budget.rows += rows
	c.budget.portions.add(&p.place)
	c.soften(p, 1)
}

// soften reserves what a scan may claim, or takes that back.
func (c *Core) soften(p *portion, sign int) {
	if t := p.of.key.tenant; p.soft {
		t.scans += sign
		c.window.soft += sign * p.rows
		t.window.soft += sign * p.rows
		c.reserve(t, sign*p.rows)
	}
}

func (c *Core) giveBack(p *portion) {
	c.budget.rows -= p.rows
	c.budget.portions.remove(&p.place)
	c.soften(p, -1)
}

// giveBackOverdue takes from scans what they hold without an answer for long. An answer that comes late finds what room
// there is then.
func (c *Core) giveBackOverdue() {
	for c.budget.portions.n > 0 && c.budget.portions.head.value.since.Add(overdue) <= c.now {
		p := c.budget.portions.head.value
		c.giveBack(p)
		p.late = true
		c.budget.late[p.of.partition].scans++
	}
}

// endPortion ends a scan's portion, if it has one, and lets one backlog go on that waited for the partition: all of them
// where nothing is late there any more.
func (c *Core) endPortion(p *portion) {
	if p.of == nil {
		return
	}
	l := &c.budget.late[p.of.partition]
	if p.late {
		l.scans--
	} else {
		c.giveBack(p)
	}
	p.of, p.late = nil, false
	for n := l.held.n; n > 0; n-- {
		b := l.held.head.value
		l.held.remove(&b.held)
		c.update(b.key)
		if l.scans > 0 {
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

// watchBudget looks again once the oldest scan is overdue.
func (c *Core) watchBudget() {
	if c.budget.watched || c.budget.portions.n == 0 {
		return
	}
	c.budget.watched = true
	c.timers.add(c.budget.portions.head.value.since.Add(overdue), func(c *Core) { c.budget.watched = false })
}
