package core

import "ankusa.dev/services/internal/hook"

// maxHushes bounds the lanes that are kept quiet. A runner that names more leases than anybody can have had is not
// waited for.
const maxHushes = 65536

// hush keeps a lane from moving on while a lease of its head that is not counted any more may go on.
func (c *Core) hush(r *hook.Row, until hook.Timestamp) {
	id := laneOf(r)
	until = min(until, c.now.Add(c.cfg.AttemptTimeout+c.cfg.LeaseMargin))
	if !r.Ordered || until <= c.hushes[id] || len(c.hushes) >= maxHushes && c.hushes[id] == 0 {
		return
	}
	if c.hushes == nil {
		c.hushes = make(map[laneID]hook.Timestamp)
	}
	c.hushes[id] = until
	c.timers.add(until, func(c *Core) {
		if c.hushes[id] != until {
			return
		}
		delete(c.hushes, id)
		if k := c.keys[id.key]; k != nil {
			l := k.backlog(id.partition).lanes[id.text]
			if l != nil && l.idle() {
				c.lead(l)
			}
			c.retire(k)
		}
	})
}

func (c *Core) hushed(l *lane) bool {
	return len(c.hushes) > 0 && c.hushes[l.id()] > c.now
}
