package core

import "ankusa.dev/services/internal/hook"

// scan asks for pages of the keys whose rows wait in the store. It deals out dispatch.batch rows at a time: each tenant
// in turn gets a share, what one does not use is left to the others, and whoever the page did not reach is first
// next time. A tenant at its window is not in the ring at all.
func (c *Core) scan() {
	if !c.gate.open {
		return
	}
	for more := true; more && c.hungry.n > 0 && c.left() > 0; {
		share := c.share()
		for n := c.hungry.n; more && n > 0; n-- {
			more = c.visit(share)
		}
	}
}

// maxTurn bounds the rows of a tenant's turn where no page reaches all tenants.
const maxTurn = 8

// share is the rows of a tenant's turn: what is left of the page, in equal parts. Where no page reaches all, those whose
// scans are under way included, a turn is of several rows, because the scan of one costs as much as that of several. The
// fuller the window, the fewer they are, down to one: rows then wait for others to end.
func (c *Core) share() int {
	if c.hungry.n+c.served.n > c.cfg.Batch {
		return min(max(1, c.window.room()/c.cfg.Batch), maxTurn)
	}
	return max(1, c.left()/c.hungry.n)
}

// visit scans one key of the tenant whose turn it is, for at most its share; false when the page is dealt out.
func (c *Core) visit(share int) bool {
	if c.hungry.n == 0 {
		return true
	}
	t := c.hungry.head.value
	limit := min(share, c.left(), c.room(t))
	if limit <= 0 {
		return false
	}
	c.hungry.next()
	b := t.behind.next()
	if c.held(b) {
		return true
	}
	limit = c.cautious(b, limit)
	kind := b.next()
	if b.key.breaker.state == halfOpen && kind != otherLanes && !b.sweeping {
		limit = 1
	}
	switch kind {
	case dueRows:
		c.scanBacklog(b, limit)
	case otherLanes:
		c.scanLanes(b, limit)
	case laneTurns:
		c.readTurns(b, limit)
	}
	return true
}

// What a backlog has to scan, one after the other where there are several.
const (
	dueRows = iota
	otherLanes
	laneTurns
	scanKinds
)

// next is the kind of scan whose turn it is.
func (b *backlog) next() int {
	for range scanKinds {
		b.kind = (b.kind + 1) % scanKinds
		switch {
		case b.kind == dueRows && b.open && (b.sweeping || b.key.scannable()):
			return dueRows
		case b.kind == otherLanes && b.order.open && b.key.scannable() && !b.sweeping:
			return otherLanes
		case b.kind == laneTurns && b.turns.n > 0 && b.key.scannable() && !b.sweeping:
			return laneTurns
		}
	}
	return dueRows
}

func (c *Core) scanBacklog(b *backlog, limit int) {
	c.beginScan(b, limit)
	c.out.Scans = append(c.out.Scans, Scan{
		ID: c.reads.begin(), Partition: b.partition, Key: b.key.id, From: b.from, After: b.after, Limit: limit,
	})
}

// Scanned answers a Scan. more says that the snapshot has rows behind the page.
func (c *Core) Scanned(now hook.Timestamp, s Scan, rows []hook.Delivery, more bool, sources map[string]Source) {
	c.advance(now)
	if c.purged(s, rows, more) {
		return
	}
	b := c.scanEnded(s.Partition, s.Key)
	sweeping := b.sweeping
	b.sweeping = false
	for i := range rows {
		if !c.scannedRow(b, &rows[i], sources, sweeping) {
			more = true
			break
		}
	}
	if !more && b.again == 0 {
		c.exhausted(b)
	}
	c.scanOver(b, s.ID)
}

// scannedRow takes one row of a page, and says whether the next may be taken.
func (c *Core) scannedRow(b *backlog, d *hook.Delivery, sources map[string]Source, sweeping bool) bool {
	switch {
	case c.claims[d.Ref()] != nil:
		c.see(b, c.claims[d.Ref()])
	case d.Due > c.now && d.Due != d.Version:
		if !b.begun(&d.State) {
			b.passed++
		}
		c.exhausted(b)
		c.sleep(b, d.Due)
		return false
	case c.free(b.key.tenant) == 0:
		b.from, b.after = d.Due, hook.ID{}
		return false
	case sweeping && b.key.parked != 0:
		if !c.sweep(b, d) {
			return false
		}
	case !b.key.claimable():
		b.from, b.after = d.Due, hook.ID{}
		return false
	case d.Ordered:
		c.wakeLane(b, d)
	default:
		c.take(c.meet(b, d), d, sources)
	}
	b.from, b.after = d.Due, d.Hook
	return true
}

// meet begins the claim of a row that a scan came by.
func (c *Core) meet(b *backlog, d *hook.Delivery) *claim {
	cl := c.hold(d.Row, ready)
	cl.newer = cl.newer || b.begun(&d.State)
	c.see(b, cl)
	return cl
}

// ScanFailed answers a Scan that the store did not: the backlog stays as it is.
func (c *Core) ScanFailed(now hook.Timestamp, s Scan) {
	c.advance(now)
	if c.notPurged(s.ID) {
		return
	}
	b := c.scanEnded(s.Partition, s.Key)
	c.hesitate(b.key)
	b.sweeping = false
	c.scanOver(b, s.ID)
}

// beginScan reserves the rows that a scan of a backlog may claim.
func (c *Core) beginScan(b *backlog, limit int) {
	b.scanning, b.again = true, 0
	c.charge(&b.portion, b, limit, true)
	c.update(b.key)
}

func (c *Core) scanEnded(partition uint8, key hook.SinkKey) *backlog {
	b := c.keys[key].backlog(partition)
	b.scanning = false
	c.endPortion(&b.portion)
	return b
}

// scanOver goes on with a backlog once the answer to its scan is handled.
func (c *Core) scanOver(b *backlog, read uint64) {
	c.seeAgain(b)
	c.endRead(read)
	if b.key.parked != 0 {
		c.watchHorizon(b)
	}
	c.update(b.key)
	c.retire(b.key)
}

// seeAgain has the next scans come by what was named while one was under way.
func (c *Core) seeAgain(b *backlog) {
	if again := b.again; again != 0 {
		b.again = 0
		c.lower(b, again)
	}
	if o := &b.order; !o.open && o.again != nil {
		o.open, o.from, o.again = true, *o.again, nil
		c.update(b.key)
	}
}
