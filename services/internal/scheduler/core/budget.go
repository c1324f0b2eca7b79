package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// overdue is how long a scan without an answer counts: what waits for a part of the store that is stuck must not keep
// others from theirs for longer.
const overdue = 200 * time.Millisecond

// budget is the rows that scans under way have asked for: at most dispatch.batch, without those that are overdue.
type budget struct {
	rows     int
	portions ring[*portion] // the oldest first
	watched  bool           // a timer looks for overdue ones
}

// portion is what one scan takes of the page.
type portion struct {
	tenant *tenant // in whose window the rows are reserved; nil where that is done elsewhere
	rows   int
	since  hook.Timestamp
	place  node[*portion]
}

// charge takes rows of the page for a scan.
func (c *Core) charge(p *portion, t *tenant, rows int) {
	p.tenant, p.rows, p.since, p.place.value = t, rows, c.now, p
	c.budget.rows += rows
	c.budget.portions.add(&p.place)
	if t != nil {
		c.reserve(t, rows)
	}
}

// refund gives them back, unless that is done.
func (c *Core) refund(p *portion) {
	c.budget.rows -= p.rows
	c.budget.portions.remove(&p.place)
	if p.tenant != nil {
		c.reserve(p.tenant, -p.rows)
	}
	p.tenant, p.rows = nil, 0
}

// refundOverdue gives back what scans hold that have no answer for long. The answer that comes late finds what room there
// is then.
func (c *Core) refundOverdue() {
	for c.budget.portions.n > 0 && c.budget.portions.head.value.since.Add(overdue) <= c.now {
		c.refund(c.budget.portions.head.value)
	}
}

// left is what can be asked for now.
func (c *Core) left() int { return c.cfg.Batch - c.budget.rows }

// watchBudget looks again once the oldest scan is overdue, where others wait for the page.
func (c *Core) watchBudget() {
	if c.budget.watched || c.hungry.n == 0 || c.budget.portions.n == 0 {
		return
	}
	c.budget.watched = true
	c.timers.add(c.budget.portions.head.value.since.Add(overdue), func(c *Core) { c.budget.watched = false })
}
