package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// A scan's result may be older than what became of its rows since.
func TestL08_AScanThatShowsASettledRowDoesNotLeaseItAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 2 })
	r.join(1, 10)
	r.holdScans = true
	r.accept(sink("t", "a"), 3, 1)
	r.first(hook.Delivered)
	require.NotEmpty(t, r.scans)
	s := r.scans[0]
	page, more := r.page(Scan{Key: s.Key, From: s.From, After: s.After, Limit: 10})
	r.all(hook.Delivered) // settled while the result is on its way
	r.scans = r.scans[1:]
	r.core.Scanned(r.now, s, page, more, r.sources)
	r.pump()
	require.Len(t, r.given, 3)
	r.holdScans = false
	r.pump()
	r.deliver()
	require.Len(t, r.given, 3)
	r.idle()
}

// A failed row, as an old scan shows it, would be leased in a version that is not the store's any more.
func TestAScanThatShowsAnOldVersionDoesNotLeaseIt(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 2; c.Breakers.Failures = 0 })
	r.join(1, 10)
	r.holdScans = true
	r.accept(sink("t", "a"), 3, 1)
	r.first(hook.Delivered)
	s := r.scans[0]
	page, _ := r.page(Scan{Key: s.Key, From: s.From, Limit: 10})
	r.core.waiting = maxWaiting // so that it is left to the store at once
	r.first(hook.Transient)
	r.core.waiting = 0
	r.scans = r.scans[1:]
	r.core.Scanned(r.now, s, page, false, r.sources)
	r.holdScans = false
	r.pump()
	for _, l := range r.leases {
		require.Equal(t, r.rows[l.Delivery.Ref()].Version, l.Delivery.Version)
	}
	r.finish(5 * time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

// A commit that is named while a scan is under way may be missing in the scan's snapshot.
func TestI2_ARowThatIsNamedDuringAScanIsNotMissed(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	g := r.store(key, 1, 1)
	r.holdScans = true
	r.backlog(key, g.Start, 0)
	page, more := r.page(r.scans[0])
	r.notify(r.store(key, 1, 1))
	s := r.scans[0]
	r.scans, r.holdScans = nil, false
	r.core.Scanned(r.now, s, page, more, r.sources)
	r.pump()
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

// A row that was committed late lies before those that a scan has passed.
func TestL10_ALateCommitBelowTheScansPositionIsNotMissed(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	late := r.store(key, 1, 1)
	row := r.rows[hook.Ref{Hook: late.Hooks[0]}]
	delete(r.rows, row.Ref()) // not committed yet
	r.holdScans = true
	r.backlog(key, r.store(key, 20, 1).Start, 0)
	r.answerScan()
	r.pump()
	r.rows[row.Ref()] = row
	r.notify(late)
	r.holdScans = false
	r.pump()
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

// The same, at the very time that the cursor stands at.
func TestL10_ALateCommitAtTheCursorsTimeIsNotMissed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 1 })
	key := sink("t", "a")
	r.join(1, 10)
	g := r.store(key, 2, 1)
	late := r.rows[hook.Ref{Hook: g.Hooks[0]}]
	delete(r.rows, late.Ref())
	r.backlog(key, g.Start, 0)
	require.Len(t, r.leases, 1, "the cursor stands behind the second row")
	r.rows[late.Ref()] = late
	r.notify(g)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestL10_APositionStaysBehindWhatIsUnsettledAndWhatMayStillCommit(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	start := r.now
	r.accept(key, 1, 1)
	r.pass(20 * time.Second)
	r.accept(key, 1, 1)
	r.report(r.leases[1], hook.Outcome{Class: hook.Delivered})
	require.LessOrEqual(t, r.settled[0].Position, r.leases[0].Delivery.Due, "the first row is unsettled")
	r.first(hook.Delivered)
	require.LessOrEqual(t, r.settled[1].Position, r.now.Add(-finality))
	r.pass(time.Minute)
	r.accept(key, 1, 1)
	r.deliver()
	require.Equal(t, r.now.Add(-finality), r.settled[2].Position|r.now&(1<<18-1))
	require.Greater(t, r.settled[2].Position, start)
}

// A failed row is due later; a position may pass its old place but not its new one.
func TestAPositionStaysBehindRowsThatWait(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.policy(func(p *hook.RetryPolicy) { p.Base, p.Max = time.Minute, time.Minute })
	key := sink("t", "a")
	r.join(1, 10)
	id := r.accept(key, 1, 1)[0]
	r.first(hook.Transient)
	due := r.rows[hook.Ref{Hook: id}].Due
	r.pass(59 * time.Second)
	r.accept(key, 1, 1)
	r.first(hook.Delivered)
	require.Less(t, r.settled[1].Position, due)
	r.pass(2 * time.Second)
	r.pass(15 * time.Second)
	r.accept(key, 1, 1)
	r.report(r.leases[len(r.leases)-1], hook.Outcome{Class: hook.Delivered})
	require.LessOrEqual(t, r.settled[2].Position, due)
}

func TestAPositionStaysBehindTheBacklog(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	behind := r.store(key, 1, 1)
	r.accept(key, 1, 1)
	r.pass(20 * time.Second)
	r.holdScans = true
	r.backlog(key, behind.Start, 0)
	r.first(hook.Delivered)
	require.LessOrEqual(t, r.settled[0].Position, behind.Start)
}

// A leader that was paused handles events before its timers: rows that were to be scanned long ago are unsettled.
func TestAPositionStaysBehindRowsThatAScanWillComeBy(t *testing.T) {
	r := newRig(t, nil)
	g := r.store(sink("t", "a"), 1, 1)
	due := r.now.Add(10 * time.Second)
	r.rows[hook.Ref{Hook: g.Hooks[0]}].Due = due
	r.backlog(g.Key, g.Start, 0)
	r.core.advance(r.now.Add(time.Minute))
	require.Equal(t, due, r.core.position(r.core.keys[g.Key].backlog(0)))
}

// missing is a rig with rows behind a position and one before it, which nobody named.
func missing(t *testing.T) (*rig, hook.SinkKey, hook.Ref, hook.Timestamp) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	lost := r.store(key, 1, 1)
	r.pass(time.Minute)
	position := r.store(key, 5, 1).Start
	r.pass(time.Minute)
	return r, key, hook.Ref{Hook: lost.Hooks[0]}, position
}

func TestI2_ABacklogBeginsAgainWhereTheCountersPromiseMore(t *testing.T) {
	r, key, lost, position := missing(t)
	r.backlog(key, position, 6)
	r.deliver()
	require.NotContains(t, r.rows, lost)
	require.Equal(t, 1, r.core.Stats().Restarts)
	r.idle()
}

func TestABacklogDoesNotBeginAgainWhereNothingIsMissing(t *testing.T) {
	r, key, lost, position := missing(t)
	delete(r.rows, lost)
	r.backlog(key, position, 5)
	r.deliver()
	require.Empty(t, r.rows)
	require.Zero(t, r.core.Stats().Restarts)
}

// Rows that are acknowledged after the counters were read must not stand in for those that the counters promise.
func TestI2_NewRowsDoNotHideThatRowsAreMissing(t *testing.T) {
	r, key, lost, position := missing(t)
	r.holdScans = true
	r.backlog(key, position, 6)
	r.accept(sink("t", "a"), 4, 1)
	r.holdScans = false
	r.pump()
	for range 20 {
		r.accept(key, 2, 1)
		r.deliver()
	}
	require.NotContains(t, r.rows, lost)
}

// The same for rows that were being committed while the counters were read.
func TestI2_RowsThatTheCountersMayNotCountDoNotHideThatRowsAreMissing(t *testing.T) {
	r, key, lost, position := missing(t)
	r.store(key, 3, 1) // committed a moment after the counters were read
	r.backlog(key, position, 6)
	r.deliver()
	require.Empty(t, r.rows)
	require.NotContains(t, r.rows, lost)
}

// The counters may know of a settle before the core does.
func TestI2_RowsWhoseSettleIsUnderWayDoNotHideThatRowsAreMissing(t *testing.T) {
	r, key, lost, position := missing(t)
	r.accept(key, 1, 1)
	r.pass(20 * time.Second)
	r.holdSettles, r.holdScans = true, true
	r.first(hook.Delivered)
	batch := r.settles
	start := r.commit(batch)
	r.settles = nil
	r.backlog(key, position, 6) // without the row that has ended
	r.core.Settled(r.now, start, batch)
	r.holdSettles, r.holdScans = false, false
	r.pump()
	r.deliver()
	require.NotContains(t, r.rows, lost)
	require.Empty(t, r.rows)
	r.idle()
}

// A row that failed and came back is one row.
func TestI2_ARowThatIsMetTwiceCountsOnce(t *testing.T) {
	r, key, lost, position := missing(t)
	r.configure(func(c *Config) { c.Breakers.Failures = 1 })
	r.backlog(key, position, 6)
	for range 4 {
		if len(r.leases) > 0 {
			r.first(hook.Transient)
		}
		r.deliver()
		r.pass(r.cfg.Breakers.MaxOpen)
	}
	for range 20 {
		r.finish(30 * time.Second)
	}
	require.NotContains(t, r.rows, lost)
	require.Empty(t, r.rows)
	r.idle()
}

// A row that was left to a scan is counted when that scan comes, not already when another passes what is remembered.
func TestI2_ARowThatWasLeftCountsOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.Breakers.Failures = 2, 1 })
	key := sink("t", "a")
	r.join(1, 10)
	lost := hook.Ref{Hook: r.store(key, 1, 1).Hooks[0]}
	r.pass(time.Minute)
	named := r.store(key, 1, 1)
	delete(r.rows, hook.Ref{Hook: named.Hooks[0]})
	position := r.store(key, 5, 1).Start
	r.pass(time.Minute)
	r.holdScans = true
	r.backlog(key, position, 6)
	r.answerScan()
	r.pump()
	r.holdReads = true
	r.accept(sink("u", "b"), 1, 1) // its read keeps what is left remembered
	r.first(hook.Transient)        // parks the key: its second row is left
	r.answerScan()
	r.notify(named) // has the next scan begin before that row
	r.core.Revised(r.now, "a")
	r.pump()
	r.answerScan()
	r.pump()
	r.holdReads = false
	r.pump()
	r.holdScans = false
	r.pump()
	r.finish(time.Minute)
	require.NotContains(t, r.rows, lost)
	require.Empty(t, r.rows)
	r.idle()
}

// One that failed and was left is met again under another due time.
func TestI2_ARowThatFailedAndWasLeftCountsOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.Breakers.Failures = 2, 0 })
	key := sink("t", "a")
	r.join(1, 10)
	lost := hook.Ref{Hook: r.store(key, 1, 1).Hooks[0]}
	r.pass(time.Minute)
	position := r.store(key, 5, 1).Start
	r.pass(time.Minute)
	r.holdScans = true
	r.backlog(key, position, 6)
	r.pass(time.Second)
	r.answerScan()
	r.pump()
	r.core.waiting = maxWaiting // nothing more is remembered
	r.first(hook.Transient)
	r.answerScan()
	r.core.waiting = 0
	r.pass(5 * time.Second)
	r.holdScans = false
	r.pump()
	r.finish(10 * time.Second)
	require.NotContains(t, r.rows, lost)
	require.Empty(t, r.rows)
	r.idle()
}

// The same where it is met by a sweep, behind a breaker.
func TestI2_ARowThatFailedAndIsSweptCountsOnce(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Batch, c.Breakers = 2, Breakers{Failures: 1, Open: 24 * time.Hour, MaxOpen: 24 * time.Hour}
	})
	r.policy(func(p *hook.RetryPolicy) { p.Horizon = time.Hour })
	key := sink("t", "a")
	r.join(1, 10)
	lost := hook.Ref{Hook: r.store(key, 1, 1).Hooks[0]}
	r.pass(time.Minute)
	position := r.store(key, 5, 1).Start
	r.pass(time.Minute)
	r.holdScans = true
	r.backlog(key, position, 6)
	r.pass(time.Second)
	r.answerScan()
	r.pump()
	r.first(hook.Transient)
	r.holdScans = false
	r.pump()
	r.pass(3 * time.Hour)
	require.Contains(t, r.buried, lost)
	require.Empty(t, r.rows)
}

func TestI11_RememberedRowsAreBounded(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Breakers.Failures, c.SinkConcurrency = 0, 0
		c.MaxInflight, c.Default.MaxInflight, c.Default.Concurrency = 1<<20, 1<<20, 1<<20
		c.Batch = 1000
	})
	r.policy(func(p *hook.RetryPolicy) { p.Base, p.Max = time.Hour, time.Hour })
	r.join(1, 1<<20)
	r.accept(sink("t", "a"), maxWaiting+500, 1)
	require.Len(t, r.leases, maxWaiting+500)
	leases := r.leases
	r.leases = nil
	var reports []hook.Report
	for _, l := range leases {
		reports = append(reports, reportOf(l, hook.Outcome{Class: hook.Transient}))
	}
	r.core.Outcomes(r.now, runnerID(1), reports)
	r.pump()
	require.Equal(t, maxWaiting, r.core.Stats().Waiting)
	require.Len(t, r.core.claims, maxWaiting)
	r.pass(time.Hour + time.Second)
	require.Len(t, r.leases, maxWaiting+500, "a scan came by the rest")
}

// What a key remembers of settled rows does not grow with the rows that it settles while one is slow.
func TestI11_ASlowRowDoesNotPinTheOthersInMemory(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	r.accept(key, 1, 1)
	for range 2000 {
		r.accept(key, 1, 1)
		r.report(r.leases[len(r.leases)-1], hook.Outcome{Class: hook.Delivered})
	}
	require.Less(t, len(r.core.keys[key].backlogs[0].unsettled), 200)
}

// Two answers for one row: named twice, by two notifies.
func TestARowThatIsNamedTwiceRunsOnce(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	g := r.store(sink("t", "a"), 1, 1)
	r.holdReads = true
	r.notify(g)
	r.notify(g)
	r.holdReads = false
	r.pump()
	r.notify(g)
	require.Len(t, r.given, 1)
	r.deliver()
	r.notify(g) // the writer missed the acknowledgement
	require.Len(t, r.given, 1)
	r.idle()
}

// A key with rows in several partitions is one key to its caps and its breaker.
func TestAKeyInSeveralPartitions(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 100)
	for p := range uint8(4) {
		g := r.store(key, 20, 1)
		g.Partition = p
		for _, id := range g.Hooks {
			r.rows[hook.Ref{Hook: id}].Partition = p
		}
		r.notify(g)
	}
	require.Equal(t, 8, r.running())
	for range 3 {
		r.first(hook.Transient)
	}
	r.all(hook.Gone)
	r.pass(r.cfg.Breakers.Open)
	require.Len(t, r.leases, 1, "one probe, whatever the number of partitions")
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

func TestL07_SettledRowsAreNotScannedAgain(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 50 })
	key := sink("t", "a")
	r.join(1, 10)
	for range 10 {
		r.accept(key, 100, 1)
		r.deliver()
	}
	require.Empty(t, r.rows)
	last := hook.Timestamp(0)
	for _, s := range r.asked {
		require.GreaterOrEqual(t, s.From, last, "scans go forward only")
		last = s.From
	}
	r.idle()
}

// One tenant's region is stuck; the others' rows are read as ever.
func TestL13_ABadRegionOfTheStoreDelaysItsOwnKeysAlone(t *testing.T) {
	r := newRig(t, nil)
	stuck, well := sink("t", "a"), sink("u", "b")
	r.join(1, 100)
	r.accept(well, 1, 1)
	r.first(hook.Delivered)
	for range 5 {
		r.holdScans = true
		r.backlog(stuck, r.store(stuck, 1, 1).Start, 0)
		for _, s := range r.scans {
			r.core.ScanFailed(r.now, s)
		}
		r.scans, r.holdScans = nil, false
		r.accept(well, 8, 1)
		require.Equal(t, 8, r.running(well), "at once, and at full pace")
		r.all(hook.Delivered)
		require.Zero(t, r.running(stuck))
	}
	r.finish(time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestI2_AFailedScanLeavesItsBacklog(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	r.join(1, 10)
	r.holdScans = true
	g := r.store(key, 3, 1)
	r.backlog(key, g.Start, 0)
	r.notify(r.store(key, 1, 1))
	r.core.ScanFailed(r.now, r.scans[0])
	r.scans, r.holdScans = nil, false
	r.pump()
	r.finish(2 * time.Second)
	require.Empty(t, r.rows)
	r.idle()
}
