package core

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// condemnAndPardon lets one page of a condemnation end.
func (r *rig) condemnAndPardon(source string) {
	r.holdSettles = true
	r.condemn(source)
	r.core.Pardoned(r.now, 1)
	r.holdSettles = false
	r.pump()
}

// condemn orders the end of a source's rows, in the places that the store has rows of it in.
func (r *rig) condemn(source string) {
	rows, ordered := map[hook.SinkKey]int64{}, map[hook.SinkKey]bool{}
	for _, d := range r.rows {
		if d.Key.SourceID == source {
			rows[d.Key]++
			ordered[d.Key] = ordered[d.Key] || d.Ordered
		}
	}
	o := Condemnation{ID: 1, SourceID: source, At: r.tick()}
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b hook.SinkKey) int { return cmp.Compare(a.Tenant, b.Tenant) })
	for _, key := range keys {
		o.Places = append(o.Places, Place{Key: key, From: r.now.Add(-time.Hour), Rows: rows[key], Ordered: ordered[key]})
	}
	r.core.Condemned(r.now, o)
	r.pump()
}

// gone counts the rows of a key that ended with their source.
func (r *rig) gone(key hook.SinkKey) (n int) {
	for ref, v := range r.buried {
		if v.Reason == "source_gone" && r.keyOf[ref] == key {
			n++
		}
	}
	return n
}

// park has the breaker of a key open before n rows.
func (r *rig) park(key hook.SinkKey, n int) {
	r.accept(key, n, 10)
	for len(r.leases) > 0 {
		r.first(hook.Transient)
	}
	require.Equal(r.t, 1, r.core.Stats().BreakersOpen)
}

func TestCondemnedRowsEndWhateverTheyWaitFor(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 3 })
	r.join(1, 2)
	a, b := sink("t", "a"), sink("t", "b")
	r.accept(a, 2, 10)
	r.all(hook.Transient) // they wait for another attempt
	require.Equal(t, 2, r.core.Stats().Waiting)
	r.accept(a, 6, 10) // two run, four wait for a slot
	r.accept(b, 3, 10)
	r.store(a, 5, 10) // nobody named them
	r.condemn("a")
	require.Equal(t, 11, r.gone(a))
	require.Equal(t, []Purged{{ID: 1, Rows: 11}}, r.purged)
	require.Equal(t, 2, r.running(a), "what runs is left to settle")
	r.finish(time.Minute)
	require.Equal(t, 11, r.gone(a))
	require.Zero(t, r.gone(b))
	require.Empty(t, r.rows)
	r.idle()
}

func TestCondemnedRowsEndBehindAnOpenBreaker(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 3)
	a := sink("t", "a")
	r.park(a, 8)
	settled := len(r.settled)
	r.condemn("a")
	require.Equal(t, 8, r.gone(a))
	require.Len(t, r.settled, settled+8)
	require.Empty(t, r.rows)
	r.pass(time.Minute)
	r.idle()
}

func TestRowsThatCameAfterTheOrderAreDelivered(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	a := sink("t", "a")
	r.store(a, 3, 10)
	r.holdScans = true
	r.condemn("a")
	r.accept(a, 2, 10)
	r.holdScans = false
	r.pump()
	require.Equal(t, 3, r.gone(a))
	require.Equal(t, 2, r.running(a))
	r.deliver()
	r.idle()
}

func TestARowThatFailsAfterItsSourceWasCondemnedIsTriedAgain(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.accept(sink("t", "a"), 1, 10)
	r.condemn("a")
	require.Equal(t, []Purged{{ID: 1}}, r.purged)
	r.first(hook.Transient)
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1, "the source is still there")
	r.first(hook.Transient)
	r.sources["a"] = Source{}
	r.accept(sink("t", "a"), 1, 10) // the read tells that it is gone
	r.pass(5 * time.Second)
	require.Equal(t, 2, r.gone(sink("t", "a")))
	r.idle()
}

func TestAKeyThatIsForgottenWithAQueueLeavesItsTenantNotRunnable(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 1)
	r.accept(sink("t", "c"), 1, 10)
	r.first(hook.Transient) // it waits, so that the tenant stays
	r.accept(sink("u", "b"), 1, 10)
	r.accept(sink("t", "a"), 3, 10) // the slot is taken
	r.condemn("a")
	require.Equal(t, 3, r.gone(sink("t", "a")))
	r.first(hook.Delivered)
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// Design rule 6: background work never comes twice in a row while a settle waits.
func TestACondemnationSettlesAPageBeforeItReadsTheNext(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 600, 10)
	r.holdSettles = true
	r.condemn("a")
	pages := 0
	for ; len(r.purged) == 0; pages++ {
		require.LessOrEqual(t, len(r.settles), 256)
		require.NotEmpty(t, r.settles)
		require.Empty(t, r.scans, "no page is read while one is being settled")
		r.answerSettles()
		r.pump()
	}
	require.Equal(t, 3, pages)
	require.Equal(t, 600, r.gone(a))
	r.idle()
}

func TestI7_WindowsBoundWhatIsCondemned(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 5 })
	r.join(1, 5)
	a, b := sink("t", "a"), sink("u", "a")
	r.accept(a, 5, 10) // they run: t is full
	r.store(a, 20, 10)
	r.store(b, 20, 10)
	r.holdSettles = true
	r.condemn("a")
	require.Len(t, r.settles, 5, "a tenant that is full waits behind the others")
	r.holdSettles = false
	r.pump()
	require.Equal(t, 20, r.gone(b))
	require.Empty(t, r.purged)
	r.first(hook.Delivered) // makes room
	require.Len(t, r.purged, 1)
	require.Equal(t, 20, r.gone(a))
	require.Equal(t, 4, r.running(a))
	r.deliver()
	r.idle()
}

// Else nobody would ever make room for the pages.
func TestI7_CondemnedRowsThatFillTheWindowsEndFirst(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight, c.Default.MaxInflightBytes = 300, 2000 })
	a, b := sink("t", "a"), sink("t", "b")
	r.accept(a, 400, 6)
	r.accept(a, 1, 500) // found no room for its bytes
	r.accept(b, 5, 6)
	require.Equal(t, 300, r.core.Stats().Claimed)
	r.holdSettles = true
	r.condemn("a")
	require.Len(t, r.settles, 256)
	r.holdSettles = false
	r.pump()
	require.Equal(t, 401, r.gone(a))
	r.join(1, 10)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestNothingOfASourceIsBegunWhileItIsCondemned(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.accept(a, 300, 10)
	r.holdSettles = true
	r.condemn("a")
	r.join(1, 10)
	require.Empty(t, r.leases)
	r.accept(a, 1, 10)
	require.Empty(t, r.leases)
	r.holdSettles = false
	r.pump()
	require.Equal(t, 300, r.gone(a))
	require.Len(t, r.leases, 1, "what came later")
	r.deliver()
	r.idle()
}

// Else rows that came later would hold the room that the condemned ones need, and each wait for the other.
func TestI7_RowsThatCameAfterTheOrderMakeRoom(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 2 })
	a := sink("t", "a")
	r.store(a, 3, 10)
	at := r.tick()
	r.accept(a, 2, 10)
	r.core.Condemned(r.now, Condemnation{ID: 1, SourceID: "a", At: at, Places: []Place{{Key: a, Rows: 3}}})
	r.pump()
	require.Empty(t, r.purged, "no room")
	r.join(1, 10)
	r.deliver()
	require.Equal(t, []Purged{{ID: 1, Rows: 3}}, r.purged)
	require.Empty(t, r.rows)
	r.idle()
}

func TestAPardonLeavesRowsThatAreNotClaimed(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 300, 10)
	r.condemnAndPardon("a")
	require.Equal(t, 256, r.gone(a))
	require.Empty(t, r.purged)
	r.join(1, 100)
	r.backlog(a, 0, len(r.rows))
	r.finish(time.Minute)
	require.Equal(t, 256, r.gone(a))
	r.idle()
}

func TestRowsThatWaitedForASlotGoOnWhenTheirSourceIsPardoned(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 1)
	a := sink("t", "a")
	r.accept(a, 3, 10)
	r.core.Condemned(r.now, Condemnation{ID: 1, SourceID: "a", At: r.tick()})
	r.core.Pardoned(r.now, 1) // before anything of it was done
	r.pump()
	r.deliver()
	require.Zero(t, r.gone(a))
	require.Empty(t, r.rows)
	r.idle()
}

func TestACondemnationMayFollowAPardonedOneWhoseReadIsUnderWay(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 3, 10)
	r.holdScans = true
	r.condemn("a")
	r.core.Pardoned(r.now, 1)
	r.condemn("a")
	require.Len(t, r.scans, 2)
	r.holdScans = false
	r.pump()
	require.Equal(t, []Purged{{ID: 1, Rows: 3}}, r.purged)
	r.idle()
}

func TestL21_ACondemnationGoesOnWhenTheStoreIsBack(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 3, 10)
	r.holdScans = true
	r.condemn("a")
	r.core.ScanFailed(r.now, r.scans[0])
	r.scans = nil
	r.holdScans = false
	r.pump()
	require.Empty(t, r.purged)
	r.pass(time.Second)
	require.Len(t, r.purged, 1)
	require.Equal(t, 3, r.gone(a))
	r.idle()
}

// A row that is being read, or that an older read could still show, is not passed over.
func TestI2_CondemnedRowsThatReadsHideAreFoundAgain(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	a := sink("t", "a")
	r.holdReads = true
	r.accept(a, 2, 10)
	require.Len(t, r.reads, 1)
	r.condemn("a")
	require.Empty(t, r.purged)
	r.holdReads = false
	r.pass(time.Second)
	require.Equal(t, 2, r.gone(a))
	require.Empty(t, r.given)
	r.idle()
}

// Its writer could tell nobody, so that the position has passed it.
func TestI2_ACondemnedRowBelowThePositionIsFound(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 2, 10)
	r.now = r.now.Add(2 * time.Hour)
	r.store(a, 3, 10)
	r.condemn("a")
	require.Equal(t, 5, r.gone(a))
	r.idle()
}

func TestI4_ACondemnationWaitsForTheLeasesOfEarlierTerms(t *testing.T) {
	r, leases := deposed(t, 3)
	r.condemn("a")
	require.Empty(t, r.purged)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 20*time.Second)}})
	require.Len(t, r.purged, 1)
	require.Equal(t, 2, r.gone(sink("t", "a")), "one runs on")
	r.report(leases[0], hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

// Rows that are newer than the counters must not make up for one that is missing.
func TestI2_NewRowsDoNotHideThatACondemnedRowIsMissing(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 1, 10) // its writer could tell nobody
	r.now = r.now.Add(2 * time.Hour)
	r.store(a, 1, 10)
	o := Condemnation{ID: 1, SourceID: "a", At: r.tick(), Places: []Place{{Key: a, From: r.now.Add(-time.Hour), Rows: 2}}}
	later := r.store(a, 1, 10)
	r.core.Condemned(r.now, o)
	r.pump()
	require.Equal(t, []Purged{{ID: 1, Rows: 2}}, r.purged)
	require.Len(t, r.rows, 1)
	require.Contains(t, r.rows, hook.Ref{Hook: later.Hooks[0]})
}

// A row that began before the order may be committed after the counters were read.
func TestI2_RowsThatAreCommittedLateDoNotHideThatACondemnedRowIsMissing(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 1, 10) // its writer could tell nobody
	r.now = r.now.Add(2 * time.Hour)
	r.store(a, 1, 10) // under way as the counters are read
	r.core.Condemned(r.now, Condemnation{
		ID: 1, SourceID: "a", At: r.tick(), Places: []Place{{Key: a, From: r.now.Add(-time.Hour), Rows: 1}},
	})
	r.pump()
	require.Equal(t, []Purged{{ID: 1, Rows: 2}}, r.purged)
	require.Empty(t, r.rows)
}

func TestAPardonLetsClaimedRowsGo(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.accept(a, 300, 10) // they wait for a slot
	r.condemnAndPardon("a")
	r.join(1, 100)
	r.deliver()
	require.Equal(t, 256, r.gone(a))
	require.Len(t, r.given, 44)
	r.idle()
}

func TestAPageOfACondemnationThatIsPardonedEndsNothing(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.store(a, 3, 10)
	r.holdScans = true
	r.condemn("a")
	r.core.Pardoned(r.now, 1)
	r.holdScans = false
	r.pump()
	require.Empty(t, r.settled)
	require.Len(t, r.rows, 3)
	r.idle()
}

// Else its tenant's window would be another when the page comes.
func TestI7_AKeyStaysWhileAPageOfItIsRead(t *testing.T) {
	r := newRig(t, nil)
	a := sink("t", "a")
	r.holdScans = true
	r.backlog(a, r.now, 0)
	r.store(a, 3, 10)
	r.condemn("a")
	require.Len(t, r.scans, 2)
	scan := r.scans[0]
	r.scans = r.scans[1:]
	r.core.Scanned(r.now, scan, nil, false, r.sources)
	require.Contains(t, r.core.keys, a)
	r.holdScans = false
	r.pump()
	require.Equal(t, 3, r.gone(a))
	r.idle()
}

// Answers come in any order. One that shows the source before it was created anew says nothing about the rows of now.
func TestAnOlderAnswerDoesNotTakeANewerSourceBack(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	a := sink("t", "a")
	r.holdReads = true
	r.accept(a, 1, 10)
	late := r.reads[0]
	r.reads = r.reads[1:]
	before, gone := r.look(late), map[string]Source{"a": {}}

	r.sources["a"] = Source{Found: true, Incarnation: 2, Policy: r.sources["b"].Policy}
	anew := r.store(a, 1, 10)
	r.rows[hook.Ref{Hook: anew.Hooks[0]}].Incarnation = 2
	r.notify(anew)
	r.holdReads = false
	r.pump()
	r.first(hook.Transient)
	r.core.RowsRead(r.now, late, before, gone)
	r.pump()
	require.Equal(t, 1, r.gone(a), "the row of the source that is gone")
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1, "the row of the source that stands is tried again")
	r.deliver()
	require.Equal(t, 1, r.gone(a))
	r.idle()
}
