package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// Pressure is what holds the pipeline up.
type Pressure struct {
	Lag  time.Duration // for how long the oldest due row has been due and not begun; zero when none is
	Full bool          // the window of claimed rows is full
}

// Pressure tells how far the rows lag that are due. It costs time for every key that has work and every row that waits
// for a slot. Rows of a parked key are not due, nor are members of a lane but its head.
func (c *Core) Pressure(now hook.Timestamp) Pressure {
	c.advance(now)
	oldest := c.now
	for _, k := range c.keys {
		if k.parked == 0 {
			oldest = min(oldest, k.oldest())
		}
	}
	w := &c.window
	return Pressure{Lag: c.now.Sub(oldest), Full: w.rows >= w.maxRows || w.bytes >= w.maxBytes || w.next != nil}
}

// oldest is since when a row of the key has been due and not begun; later than all when none is.
func (k *sinkKey) oldest() hook.Timestamp {
	at := never
	for _, cl := range k.queue.items[k.queue.head:] {
		if cl.state == ready {
			at = min(at, cl.Due)
		}
	}
	for _, b := range k.backlogs {
		if b.open {
			at = min(at, b.begins())
		}
	}
	return at
}

// begins is the due time of the first row of a backlog, as far as it is known: one that begins at the beginning of all
// times is as old as the word that it does.
func (b *backlog) begins() hook.Timestamp {
	if b.from == beginning {
		return b.asked
	}
	return b.from
}

// Quiet says whether nothing is claimed, running or due. It costs time for every key that has work and every row that
// is remembered.
func (c *Core) Quiet() bool {
	if c.window.rows+c.window.reserved+c.running > 0 || c.purging.now != nil {
		return false
	}
	for _, k := range c.keys {
		if !k.quiet() {
			return false
		}
	}
	for _, cl := range c.claims {
		if cl.state != waiting && cl.state != settled {
			return false
		}
	}
	return true
}

func (k *sinkKey) quiet() bool {
	for _, b := range k.backlogs {
		if b.scanning || k.parked == 0 && (b.open || b.order.open || b.leaderless()) {
			return false
		}
	}
	return true
}

// leaderless says whether a lane of the backlog waits to have a head.
func (b *backlog) leaderless() bool {
	for _, l := range b.lanes {
		if l.head == nil {
			return true
		}
	}
	return false
}
