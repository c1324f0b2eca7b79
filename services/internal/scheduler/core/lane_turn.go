package core

// maxTurns bounds the lanes that wait for their turn; beyond it they are left to the cursors.
const maxTurns = 16384

// turns are the lanes of a backlog that are to be read, in the order in which they came. A lane has used up its turn when
// what was read ahead of it has led, if others wait for room: lanes that are never empty would keep it for ever.
type turns struct {
	queue queue[*lane]
	n     int // lanes that wait; the queue can hold some that do not any more
}

// contended says whether others wait for the room that a row of the tenant takes.
func (c *Core) contended(t *tenant) bool {
	return t.behind.n > 0 || c.hungry.n > 0 || t.window.next != nil || c.window.next != nil
}

// waitTurn has a lane without a head wait until it can be read.
func (c *Core) waitTurn(l *lane) {
	switch {
	case l.waits:
		return
	case c.turns >= maxTurns:
		c.giveUp(l)
		return
	}
	l.forgetRows()
	l.woken, l.waits = 0, true
	b := l.backlog
	b.turns.queue.push(l)
	b.turns.n++
	c.turns++
	c.update(b.key)
}

func (c *Core) unwaitTurn(l *lane) {
	if !l.waits {
		return
	}
	l.waits = false
	l.backlog.turns.n--
	c.turns--
}

// readTurns asks for the lanes whose turn it is.
func (c *Core) readTurns(b *backlog, limit int) {
	for limit > 0 && b.turns.n > 0 {
		l := b.turns.queue.pop()
		if !l.waits || b.lanes[l.text] != l {
			continue
		}
		c.unwaitTurn(l)
		c.ask(l)
		l.dealt = true
		c.budget.rows++ // until it is sent, with others
		limit--
	}
	c.update(b.key)
}
