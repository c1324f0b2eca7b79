package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// deposed is a rig whose leader was deposed while a runner works on n rows.
func deposed(t *testing.T, n int) (*rig, []Lease) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.accept(sink("t", "a"), n, 1)
	leases := r.leases
	require.Len(t, leases, n)
	r.elect(map[hook.RunID]time.Duration{runnerID(1): 35 * time.Second})
	r.backlog(sink("t", "a"), 0, n)
	return r, leases
}

func TestI4_I5_ANewLeaderWaitsForTheLeasesOfEarlierTerms(t *testing.T) {
	r, _ := deposed(t, 3)
	r.join(2, 10)
	r.pass(34 * time.Second)
	require.Len(t, r.given, 3, "rows that an earlier leader may have leased")
	require.False(t, r.core.Stats().GateOpen)
	r.pass(time.Second)
	require.Equal(t, []hook.RunID{runnerID(1)}, r.forgets)
	require.Greater(t, len(r.given), 3)
	r.finish(time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestTheGateOpensWhenAllKnownRunnersHaveSpoken(t *testing.T) {
	r, _ := deposed(t, 3)
	require.Empty(t, r.asked)
	r.join(1, 10)
	require.True(t, r.core.Stats().GateOpen)
	r.finish(time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

// Rows that an earlier leader cannot have leased need not wait.
func TestRowsAboveTheBumpAreClaimedAtOnce(t *testing.T) {
	r, _ := deposed(t, 3)
	r.join(2, 10)
	r.accept(sink("u", "b"), 1, 1)
	require.Equal(t, 1, r.running(sink("u", "b")))
}

// The rule is about the row's version, not about who names it or when.
func TestRowsBelowTheBumpWaitForTheGateHoweverTheyAreNamed(t *testing.T) {
	r := newRig(t, nil)
	g := r.store(sink("t", "a"), 1, 1)
	r.elect(map[hook.RunID]time.Duration{runnerID(1): 35 * time.Second})
	r.join(2, 10)
	r.notify(g)
	require.Empty(t, r.given)
	r.pass(36 * time.Second)
	require.Len(t, r.given, 1)
}

func TestI5_LeasesOfAnEarlierTermStayWithTheirRunner(t *testing.T) {
	r, leases := deposed(t, 3)
	var running []hook.Running
	for _, l := range leases {
		running = append(running, runningOf(l, 20*time.Second))
	}
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: running})
	require.Len(t, r.given, 3, "nothing is leased again")
	require.Empty(t, r.drops)
	require.Equal(t, 3, r.core.Stats().Running)
	for _, l := range leases {
		r.report(l, hook.Outcome{Class: hook.Delivered})
	}
	require.Empty(t, r.rows)
	require.Len(t, r.acks, 3)
	r.idle()
}

// A lease takes a slot of its runner's while its row is being read, and counts in all caps from then on.
func TestLeasesOfAnEarlierTermCount(t *testing.T) {
	r, leases := deposed(t, 2)
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 2}, Running: []hook.Running{runningOf(leases[0], 20*time.Second), runningOf(leases[1], 20*time.Second)}})
	busy := r.store(sink("u", "b"), 1, 1)
	r.core.Backlog(r.now, 0, busy.Key, busy.Start, 0, false)
	r.pump()
	require.Len(t, r.given, 2, "no slot is free")
	r.holdReads = false
	r.pump()
	require.Len(t, r.given, 2)
	require.Equal(t, 2, r.core.Stats().Running)
	require.Equal(t, 3, r.core.Stats().Claimed)
	r.report(leases[0], hook.Outcome{Class: hook.Delivered})
	require.Len(t, r.given, 3)
	r.report(leases[1], hook.Outcome{Class: hook.Delivered})
	r.deliver()
	r.idle()
}

func TestAnAdoptedLeaseEndsWithItsTime(t *testing.T) {
	r, leases := deposed(t, 1)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 10*time.Second)}})
	r.pass(10*time.Second + r.cfg.LeaseMargin - time.Millisecond)
	require.Empty(t, r.settled)
	r.pass(time.Millisecond)
	require.Len(t, r.settled, 1)
	require.Equal(t, []Drop{{runnerID(1), leases[0].Lease}}, r.drops)
}

func TestI5_OutcomesOfAnEarlierTermSettleTheirRows(t *testing.T) {
	for _, held := range []bool{false, true} {
		r, leases := deposed(t, 1)
		r.holdReads = held
		r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(leases[0], hook.Outcome{Class: hook.Delivered})}})
		if held { // reported twice while its row is being read
			r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(leases[0], hook.Outcome{Class: hook.Delivered})}})
		}
		r.holdReads = false
		r.pump()
		require.Empty(t, r.rows)
		require.Contains(t, r.acks, Ack{runnerID(1), leases[0].Lease})
		r.idle()
	}
}

// The runner reports while the row of its lease is being read.
func TestAnOutcomeThatOvertakesTheAdoptionOfItsLease(t *testing.T) {
	r, leases := deposed(t, 1)
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 10*time.Second)}})
	r.reportAs(runnerID(1), leases[0], hook.Outcome{Class: hook.Delivered})
	r.holdReads = false
	r.pump()
	require.Empty(t, r.rows)
	require.Equal(t, []Ack{{runnerID(1), leases[0].Lease}}, r.acks)
	require.Empty(t, r.drops)
	r.idle()
}

// A second hello, while the rows of the first are being read: the leases still stand.
func TestI5_ASecondHelloDuringAnAdoptionKeepsTheLease(t *testing.T) {
	r, leases := deposed(t, 1)
	r.holdReads = true
	h := Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 10*time.Second)}}
	r.rejoin(1, h)
	r.lost(1)
	r.rejoin(1, h)
	r.holdReads = false
	r.pump()
	require.Empty(t, r.drops)
	require.Equal(t, 1, r.core.Stats().Running)
	r.report(leases[0], hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

// A row that moved on since is not the lease's any more: dropped, but a success still settles.
func TestALeaseOfAnEarlierTermWhoseRowMovedOn(t *testing.T) {
	moves := map[string]func(*rig, *hook.Delivery){
		"version":  func(r *rig, d *hook.Delivery) { d.Version = r.tick() },
		"attempts": func(_ *rig, d *hook.Delivery) { d.Attempts = 1 },
	}
	for name, class := range map[string]hook.Class{"running": 0, "failed": hook.Transient, "delivered": hook.Delivered} {
		for what, move := range moves {
			t.Run(name+" "+what, func(t *testing.T) {
				r, leases := deposed(t, 1)
				d := *r.rows[leases[0].Delivery.Ref()]
				move(r, &d)
				r.rows[d.Ref()] = &d
				h := Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 10*time.Second)}}
				if class != 0 {
					h = Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(leases[0], hook.Outcome{Class: class})}}
				}
				r.rejoin(1, h)
				if class == 0 {
					require.Equal(t, []Drop{{runnerID(1), leases[0].Lease}}, r.drops)
				} else {
					require.Equal(t, []Ack{{runnerID(1), leases[0].Lease}}, r.acks)
				}
				require.Len(t, r.leases, b2i(class != hook.Delivered))
				r.deliver()
				require.Empty(t, r.rows)
				r.idle()
			})
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The success must not be lost because there is no room for the row at that moment.
func TestALateSuccessNeedsNoRoomInTheWindows(t *testing.T) {
	r, leases := deposed(t, 1)
	r.configure(func(c *Config) { c.Default.MaxInflight = 1 })
	d := *r.rows[leases[0].Delivery.Ref()]
	d.Version, d.Attempts = r.tick(), 1
	r.rows[d.Ref()] = &d
	r.join(2, 1)
	r.accept(sink("t", "b"), 1, 1)
	require.Equal(t, 1, r.core.Stats().Claimed)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(leases[0], hook.Outcome{Class: hook.Delivered})}})
	require.NotContains(t, r.rows, d.Ref())
	r.deliver()
	require.Len(t, r.given, 2, "delivered once")
	r.idle()
}

// The gate did not wait for its runner any more; its row was claimed, and left to a scan again.
func TestALateSuccessOfAnEarlierTermFindsARowThatWasLeftToAScan(t *testing.T) {
	r, leases := deposed(t, 2)
	r.configure(func(c *Config) { c.Breakers.Failures = 1 })
	r.join(2, 1)
	r.pass(36 * time.Second)
	require.Len(t, r.leases, 1)
	r.holdReads = true
	r.accept(sink("u", "b"), 1, 1) // a read is under way, so that what is left is remembered for a while
	failed := r.leases[0].Delivery.Hook
	r.first(hook.Transient)
	old := leases[b2i(leases[0].Delivery.Hook == failed)]
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 1}, Reports: []hook.Report{reportOf(old, hook.Outcome{Class: hook.Delivered})}})
	r.holdReads = false
	r.pump()
	require.NotContains(t, r.rows, old.Delivery.Ref())
	r.finish(2 * time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

func TestAnAdoptedRowThatTheStoreCannotReadIsReadAgain(t *testing.T) {
	r, leases := deposed(t, 1)
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 10*time.Second)}})
	r.core.ReadFailed(r.now, r.reads[0])
	r.reads, r.holdReads = nil, false
	r.pump()
	r.pass(pause)
	require.Equal(t, 1, r.core.Stats().Running)
	require.Empty(t, r.drops)
}

// A runner that is lost for good while the row of its lease is being read.
func TestAnAdoptionWhoseRunnerIsLostMeanwhile(t *testing.T) {
	r, leases := deposed(t, 1)
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], 30*time.Second)}})
	r.lost(1)
	r.pass(r.cfg.Grace)
	r.holdReads = false
	r.pump()
	require.EqualValues(t, 1, r.settled[0].Verdict.State.Lost)
	r.join(2, 1)
	r.finish(5 * time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestI11_LeasesOfRowsThatAreGoneLeaveNothing(t *testing.T) {
	r, leases := deposed(t, 2)
	clear(r.rows)
	r.rejoin(1, Hello{
		Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(leases[0], time.Second)},
		Reports: []hook.Report{reportOf(leases[1], hook.Outcome{Class: hook.Delivered})},
	})
	require.Len(t, r.drops, 1)
	require.Len(t, r.acks, 1)
	r.idle()
}

// again writes a row back as another leader has, whose answer its runner never heard.
func (r *rig) again(l Lease) {
	row := r.rows[l.Delivery.Ref()]
	r.commit([]hook.Settlement{{Delivery: *row, Verdict: hook.Verdict{Kind: hook.Again, State: row.State, Due: r.now.Add(time.Second)}}})
}

// The runner reports what an earlier leader has settled. The row stands at another time, where a scan comes by it before
// the report is found to be old.
func TestI2_ARowThatWasWrittenBackIsNotPassedOverForAnOldReport(t *testing.T) {
	r, leases := deposed(t, 1)
	r.again(leases[0])
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(leases[0], hook.Outcome{Class: hook.Transient})}})
	r.holdReads = false
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// … or a writer names it once more.
func TestI2_ARowThatWasWrittenBackIsNotPassedOverForAnOldNotify(t *testing.T) {
	r, leases := deposed(t, 1)
	old := leases[0].Delivery.Row
	r.again(leases[0])
	r.holdScans = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}})
	require.Len(t, r.scans, 1)
	r.scans[0].From = old.Due + 1 // as if it were a later page
	r.core.keys[old.Key].backlog(0).from = old.Due + 1
	r.holdReads = true
	r.notify(hook.Group{Key: old.Key, Start: old.Due, Hooks: []hook.ID{old.Hook}})
	require.Len(t, r.reads, 1)
	r.holdScans = false
	r.pump()
	r.holdReads = false
	r.finish(time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

// What had ended before the counters were read stands for no row that they promise.
func TestI2_AReportOfARowThatHasEndedDoesNotHideThatRowsAreMissing(t *testing.T) {
	r := newRig(t, nil)
	key := sink("t", "a")
	lost := r.store(key, 1, 10)
	r.join(1, 10)
	r.accept(key, 1, 10)
	old := r.leases[0]
	delete(r.rows, old.Delivery.Ref())
	r.pass(20 * time.Second)
	r.elect(map[hook.RunID]time.Duration{runnerID(1): 35 * time.Second})
	r.backlog(key, r.now.Add(-time.Second), 1)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(old, hook.Outcome{Class: hook.Delivered})}})
	r.finish(time.Minute)
	require.Contains(t, r.begun(), lost.Hooks[0])
	r.idle()
}

func TestARunnerThatComesBackNeedsNoRoom(t *testing.T) {
	r := newRig(t, nil)
	first := r.join(1, 10)
	r.join(2, 10)
	require.True(t, r.core.RoomFor(first, 2))
	require.False(t, r.core.RoomFor(hook.RunID{3}, 2))
	require.True(t, r.core.RoomFor(hook.RunID{3}, 3))
}

func TestEffectsStandUntilTheNextAreTaken(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.accept(sink("t", "a"), 2, 1)
	deliver := func(l Lease) {
		r.core.Outcomes(r.now, l.Runner, []hook.Report{{
			Lease: l.Lease, Row: l.Delivery.Row, Attempt: l.Attempt, Outcome: hook.Outcome{Class: hook.Delivered},
		}})
	}
	require.Len(t, r.leases, 2)
	deliver(r.leases[0])
	taken := r.core.Take().Settles
	require.Len(t, taken, 1)
	want := taken[0]
	deliver(r.leases[1])
	require.Equal(t, want, taken[0])
	next := r.core.Take().Settles
	require.Len(t, next, 1)
	require.Equal(t, r.leases[1].Delivery.Hook, next[0].Delivery.Hook)
}
