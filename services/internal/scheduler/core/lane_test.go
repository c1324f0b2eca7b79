package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestI6_OneHookOfALaneAtATimeInOrder(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := append(r.enter("x", "x", "x"), r.enter("x", "x")...)
	require.Len(t, r.leases, 1)
	r.holdSettles = true
	r.first(hook.Delivered)
	require.Empty(t, r.leases, "the lane moves on when the end of its head is committed")
	r.holdSettles = false
	r.pump()
	r.deliver()
	require.Equal(t, ids, r.begun())
	r.idle()
}

// The second hook of the lane is named first, by another writer. The first was acknowledged before the second was
// received, so that the snapshot which finds the second shows it, too.
func TestI6_ANamedMemberIsNotTheHeadWhereALowerOneStands(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	first, second := r.members(r.tick(), "x"), r.members(r.tick(), "x")
	r.notify(second)
	r.notify(first)
	r.deliver()
	require.Equal(t, append(first.Hooks, second.Hooks...), r.begun())
	r.idle()
}

func TestL18_AFailingHeadBlocksItsLaneAlone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	s := r.sources["a"]
	s.Policy.Horizon = 10 * time.Minute
	r.sources["a"] = s
	r.join(1, 10)
	ids := r.enter("poison", "well", "poison", "well")
	r.report(r.leases[0], hook.Outcome{Class: hook.Transient})
	r.deliver()
	require.Len(t, r.rows, 2, "the other lane went on")
	require.Equal(t, 1, r.core.Stats().LanesBlocked)
	require.Empty(t, r.core.keys[sink("t", "a")].backlogs[0].lanes["poison"].rows, "nothing is read ahead while it waits")
	for until := r.now.Add(9 * time.Minute); r.now < until; r.pass(time.Second) {
		for len(r.leases) > 0 {
			require.Equal(t, ids[0], r.leases[0].Delivery.Hook, "the member behind waits")
			r.first(hook.Transient)
		}
	}
	for until := r.now.Add(2 * time.Minute); r.now < until && len(r.buried) == 0; r.pass(time.Second) {
		for len(r.leases) > 0 && r.leases[0].Delivery.Hook == ids[0] {
			r.first(hook.Transient)
		}
	}
	require.Contains(t, r.buried, hook.Ref{Hook: ids[0]}, "until its horizon at most")
	r.finish(time.Minute)
	require.Empty(t, r.rows, "the lane is free again")
	r.idle()
}

// A head keeps its lead once it was attempted, whatever commits late before it. That is next.
func TestI6_WhatIsBeforeAHeadThatWaitsIsNext(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 0 })
	r.join(1, 10)
	early := r.tick()
	head := r.enter("x")
	for range 5 {
		r.first(hook.Transient)
		r.pass(20 * time.Second)
	}
	r.first(hook.Transient)
	late, behind := r.members(early, "x"), r.members(r.tick(), "x")
	r.elect(nil)
	r.join(1, 10)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, true)
	r.pump()
	r.pass(time.Minute)
	r.first(hook.Transient) // what was read ahead is let go
	r.finish(2 * time.Minute)
	order := r.begun()
	require.Equal(t, []hook.ID{head[0], late.Hooks[0], behind.Hooks[0]}, order[len(order)-3:])
	r.idle()
}

func TestAHeadThatIsGoneReleasesItsLane(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x", "x")
	delete(r.rows, hook.Ref{Hook: ids[0]})
	r.first(hook.Gone)
	require.Len(t, r.leases, 1)
	require.Equal(t, ids[1], r.leases[0].Delivery.Hook)
	r.deliver()
	r.idle()
}

func TestALaneLongerThanOneReadIsDeliveredInOrder(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter(slices.Repeat([]string{"x"}, 5*readAhead+3)...)
	for len(r.leases) > 0 {
		r.first(hook.Delivered)
		r.pass(time.Second)
	}
	require.Equal(t, ids, r.begun())
	r.idle()
}

// A window of four rows, forty lanes: what is not held is found by the cursor.
func TestLanesBeyondTheWindowAreComeBy(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight = 4 })
	r.join(1, 10)
	var lanes []string
	for i := range 40 {
		lanes = append(lanes, fmt.Sprint("lane", i), fmt.Sprint("lane", i))
	}
	r.enter(lanes...)
	require.Len(t, r.leases, 4)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestLanesBehindAnOpenBreakerStayWhereTheyAre(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 2 })
	r.join(1, 2)
	r.enter("a", "b", "c", "d", "e", "a", "b")
	for len(r.leases) > 0 { // two fail, the third had begun before
		r.first(hook.Transient)
	}
	settled := len(r.settled)
	r.pass(29 * time.Second)
	require.Len(t, r.settled, settled, "nothing is written")
	require.Empty(t, r.leases)
	r.pass(time.Second)
	require.Len(t, r.leases, 1, "one probe")
	r.finish(10 * time.Minute)
	require.Empty(t, r.rows)
	for _, s := range r.settled[settled:] {
		require.Equal(t, hook.Complete, s.Verdict.Kind)
	}
	r.idle()
}

// A head that failed may be dropped from memory; its wake-up row brings the lane back, and no member overtakes it.
func TestI6_ALaneThatIsNotHeldStaysBehindItsHead(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x", "x")
	r.first(hook.Transient)
	r.elect(map[hook.RunID]time.Duration{})
	r.join(1, 10)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 2, true)
	r.pump()
	require.Empty(t, r.leases, "the head is not due, the member behind it not next")
	require.Zero(t, r.core.Stats().Lanes, "a lane whose head waits needs no place")
	ids = append(ids, r.enter("x")...)
	require.Empty(t, r.leases)
	r.finish(time.Minute)
	require.Equal(t, []hook.ID{ids[0], ids[0], ids[1], ids[2]}, r.begun())
	r.idle()
}

// A member with a lower place was being committed while the head led for the first time.
func TestI6_ALateMemberIsFoundBelowAHeadThatIsDueAgain(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	early := r.tick()
	head := r.enter("x")
	r.first(hook.Transient)
	late := r.members(early, "x")
	r.elect(nil)
	r.join(1, 10)
	last := r.members(r.tick(), "x")
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, false) // due rows alone
	r.pump()
	r.notify(last)
	r.finish(time.Minute)
	require.Equal(t, []hook.ID{head[0], head[0], late.Hooks[0], last.Hooks[0]}, r.begun())
}

func TestI6_ALostRunnersHeadIsOverAtItsDeadline(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x", "x")
	r.lost(1)
	r.leases = nil
	r.join(2, 10)
	r.pass(r.cfg.Grace + time.Second)
	require.Empty(t, r.leases, "the runner may still be at it")
	require.Empty(t, r.forgets)
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin - r.cfg.Grace)
	require.Len(t, r.settled, 1)
	require.EqualValues(t, 1, r.settled[0].Verdict.State.Lost)
	require.Equal(t, []hook.RunID{runnerID(1)}, r.forgets)
	r.finish(time.Minute)
	require.Equal(t, []hook.ID{ids[0], ids[0], ids[1]}, r.begun())
}

// The head was leased again when its first runner reports success: the second lease is taken back, but may go on until
// its runner has heard of it.
func TestI6_ALaneWaitsForALeaseThatWasTakenBack(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x", "x")
	old := r.leases[0]
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin)
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1)
	r.reportAs(old.Runner, old, hook.Outcome{Class: hook.Delivered})
	require.NotContains(t, r.rows, hook.Ref{Hook: ids[0]})
	require.Empty(t, r.leases)
	r.pass(r.cfg.AttemptTimeout)
	require.Empty(t, r.leases)
	r.pass(r.cfg.LeaseMargin)
	require.Len(t, r.leases, 1)
	require.Equal(t, ids[1], r.leases[0].Delivery.Hook)
	r.deliver()
	r.idle()
}

func TestI6_ALaneGoesOnBehindALeaseOfAnEarlierTerm(t *testing.T) {
	r := newRig(t, nil)
	id := r.join(1, 10)
	ids := r.enter("x", "x")
	held := r.leases[0]
	r.elect(map[hook.RunID]time.Duration{id: time.Minute})
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 2, true)
	r.pump()
	third := r.enter("x")
	require.Empty(t, r.leases, "the gate is shut, and what was named stands behind what waits for it")
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(held, 20*time.Second)}})
	require.Empty(t, r.leases)
	r.reportAs(id, held, hook.Outcome{Class: hook.Delivered})
	r.deliver()
	require.Equal(t, []hook.ID{ids[0], ids[1], third[0]}, r.begun())
	r.idle()
}

// A lane that ended is read from its end on: what is deleted before costs nothing. A member that turns up from before
// is named, and read from there.
func TestL07_ALaneThatEndedIsReadFromThereOn(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.enter("x")
	r.deliver()
	ended := r.now
	r.pass(time.Minute)
	r.holdReads = true
	r.enter("x")
	require.GreaterOrEqual(t, r.laneReads[0].Lanes[0].From.Start, ended.Add(-2*finality))
	r.holdReads = false
	r.pump()
	r.deliver()
	late := r.members(ended.Add(-time.Hour), "x")
	r.notify(late)
	require.Len(t, r.leases, 1)
	r.deliver()
	r.idle()
}

func TestI6_AFailedReadLeavesALaneToTheCursor(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.holdReads = true
	ids := r.enter("x", "x")
	r.core.LanesNotRead(r.now, r.laneReads[0])
	r.laneReads, r.holdReads = nil, false
	r.pump()
	require.Empty(t, r.leases)
	r.finish(time.Second)
	require.Equal(t, ids, r.begun())
	r.idle()
}

// That a lane had ended says nothing about a member that was named below afterwards.
func TestI6_ALaneThatBeganAnewIsReadFromItsBeginning(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 1 })
	r.join(1, 10)
	r.enter("x")
	r.deliver()
	late := r.members(r.now.Add(-time.Hour), "x")
	r.notify(late)
	r.first(hook.Transient) // opens the breaker, so that the head is let go of when it is due
	r.holdScans = true
	r.pass(r.cfg.Breakers.Open)
	r.enter("x")
	require.Len(t, r.leases, 1)
	require.Equal(t, late.Hooks[0], r.leases[0].Delivery.Hook, "the head is due again, and stands in front")
	r.holdScans = false
	r.finish(time.Minute)
	r.idle()
}

// A runner goes on with an attempt of an earlier term that is out of date, until it hears that it must not.
func TestI6_ALaneWaitsForALeaseOfAnEarlierTermThatIsRefused(t *testing.T) {
	r := newRig(t, nil)
	id := r.join(1, 10)
	ids := r.enter("x", "x")
	old := runningOf(r.leases[0], 20*time.Second)
	d := *r.rows[hook.Ref{Hook: ids[0]}]
	d.Attempts, d.Due, d.Version = 1, r.tick(), r.now
	r.rows[d.Ref()] = &d
	r.elect(map[hook.RunID]time.Duration{id: time.Minute})
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 2, true)
	r.pump()
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{old}})
	require.Len(t, r.drops, 1)
	require.Len(t, r.leases, 1, "the head itself may be tried again")
	r.first(hook.Delivered)
	require.Empty(t, r.leases)
	r.pass(20*time.Second + r.cfg.LeaseMargin)
	require.Len(t, r.leases, 1)
	require.Equal(t, ids[1], r.leases[0].Delivery.Hook)
	r.deliver()
	r.idle()
}

// A commit was under way when the lane was read, and what it stored was named by nobody before the next member was.
func TestI6_TheNextReadBeginsBelowWhatMayStillBeCommitted(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	early := r.tick()
	head := r.enter("x")
	late := r.members(early, "x")
	last := r.enter("x")
	r.deliver()
	require.Equal(t, []hook.ID{head[0], late.Hooks[0], last[0]}, r.begun())
	r.idle()
}

func TestI2_AMemberThatIsNamedBelowAHeldLaneIsRead(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.enter("x")
	r.notify(r.members(r.now.Add(-time.Hour), "x"))
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestI6_TheLeaseOfARunnerThatIsLostBeforeItsRowIsReadGoesOn(t *testing.T) {
	r := newRig(t, nil)
	id := r.join(1, 10)
	r.enter("x", "x")
	held := runningOf(r.leases[0], 25*time.Second)
	r.elect(map[hook.RunID]time.Duration{id: time.Minute})
	r.join(2, 10)
	r.holdReads = true
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{held}})
	r.core.Leaving(r.now, id)
	r.lost(1)
	r.holdReads = false
	r.pump()
	r.pass(20 * time.Second)
	require.Empty(t, r.settled)
	require.Empty(t, r.leases)
	r.pass(25 * time.Second)
	require.EqualValues(t, 1, r.settled[0].Verdict.State.Lost)
	r.finish(time.Minute)
	require.Empty(t, r.rows)
}

// A late member leads; the one behind it was delivered in an earlier term, as its runner tells now.
func TestI6_AMemberThatHasEndedMeanwhileNeverLeads(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	early := r.tick()
	ids := r.enter("x", "x")
	old := reportOf(r.leases[0], hook.Outcome{Class: hook.Delivered})
	late := r.members(early, "x")
	r.elect(nil)
	r.join(2, 10)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, true)
	r.pump()
	require.Equal(t, late.Hooks[0], r.leases[0].Delivery.Hook)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{old}})
	require.NotContains(t, r.rows, hook.Ref{Hook: ids[0]})
	r.deliver()
	require.Equal(t, []hook.ID{ids[0], late.Hooks[0], ids[1]}, r.begun())
	r.idle()
}

func TestI4_AMemberThatAnEarlierTermMayHaveLeasedWaitsForTheGate(t *testing.T) {
	r := newRig(t, nil)
	id := r.join(1, 10)
	r.enter("x")
	r.elect(map[hook.RunID]time.Duration{id: time.Minute})
	r.join(2, 10)
	r.enter("x")
	require.Empty(t, r.leases)
	r.pass(time.Minute)
	require.Len(t, r.leases, 1)
	r.deliver()
	require.Empty(t, r.rows)
}

// overtaken is a lane that a late member leads in a term which knows of no earlier runner; what that runner had of the
// member behind is returned.
func overtaken(t *testing.T) (r *rig, late hook.ID, ids []hook.ID, old Lease) {
	r = newRig(t, nil)
	r.join(1, 10)
	early := r.tick()
	ids = r.enter("x", "x")
	old = r.leases[0]
	late = r.members(early, "x").Hooks[0]
	r.elect(nil)
	r.join(2, 10)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, true)
	r.pump()
	require.Equal(t, late, r.leases[0].Delivery.Hook)
	return r, late, ids, old
}

func TestI6_AFailureThatIsToldLateStartsNothingBesideTheHead(t *testing.T) {
	r, late, ids, old := overtaken(t)
	r.rejoin(1, Hello{
		Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(old, hook.Outcome{Class: hook.Transient})},
	})
	r.pass(time.Minute)
	require.Len(t, r.leases, 1)
	require.Equal(t, late, r.leases[0].Delivery.Hook, "timed out, and tried again")
	r.finish(time.Minute)
	require.NotContains(t, r.rows, hook.Ref{Hook: ids[0]})
	require.Equal(t, ids[1], r.begun()[len(r.begun())-1])
}

func TestI6_ALeaseThatIsToldLateEndsBesideTheHead(t *testing.T) {
	for name, version := range map[string]hook.Timestamp{"of the row as it is": 0, "of another version": 1} {
		t.Run(name, func(t *testing.T) {
			r, late, ids, old := overtaken(t)
			running := runningOf(old, 20*time.Second)
			running.Row.Version += version
			r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{running}})
			require.Equal(t, []Drop{{runnerID(1), old.Lease}}, r.drops)
			require.Len(t, r.leases, 1)
			require.Equal(t, late, r.leases[0].Delivery.Hook)
			r.first(hook.Delivered)
			require.Empty(t, r.leases, "it may go on until it hears of it")
			r.pass(20*time.Second + r.cfg.LeaseMargin)
			r.deliver()
			require.Equal(t, []hook.ID{ids[0], late, ids[0], ids[1]}, r.begun())
			r.idle()
		})
	}
}

// What a member waits for is not to wait for company; where many lanes of a sink run, company is there, and it is to.
func TestASettleIsUrgentWhereAMemberWaitsForIt(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 100 })
	r.join(1, 100)
	ids := r.enter("x", "x", "x")
	r.first(hook.Delivered)
	require.Len(t, r.urgent, 1)
	require.Equal(t, ids[0], r.urgent[0].Delivery.Hook)
	r.first(hook.Transient)
	require.Len(t, r.urgent, 1, "the lane waits for the next attempt, not for the settle")
	r.finish(time.Minute)
	require.Len(t, r.settled, 4)
	require.Len(t, r.urgent, 2, "nothing waits for the last member")
	r.accept(sink("t", "b"), 1, 1)
	r.deliver()
	require.Len(t, r.urgent, 2, "nothing waits for a row of no lane")

	var lanes []string
	for i := range 2 * fewRunning {
		lanes = append(lanes, fmt.Sprint("lane", i), fmt.Sprint("lane", i))
	}
	r.enter(lanes...)
	require.Equal(t, 2*fewRunning, r.running(sink("t", "a")))
	r.all(hook.Delivered) // each makes room for the next member
	require.Len(t, r.urgent, 2, "many run all the time")
	r.all(hook.Delivered)
	require.Len(t, r.urgent, 2, "nothing waits for the last members")
	r.idle()
}
