package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// one is a rig with one row that a runner works on.
func one(t *testing.T) (*rig, Lease) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.accept(sink("t", "a"), 1, 1)
	require.Len(t, r.leases, 1)
	return r, r.leases[0]
}

func (r *rig) lost(n byte) {
	r.core.Lost(r.now, runnerID(n))
	r.pump()
}

func TestL16_AnExpiredLeaseCountsAsTimedOutAndIsDropped(t *testing.T) {
	r, l := one(t)
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin - time.Millisecond)
	require.Empty(t, r.settled, "a lease outlives the attempt by its margin")
	r.pass(time.Millisecond)
	require.Equal(t, []Drop{{l.Runner, l.Lease}}, r.drops)
	require.Len(t, r.settled, 1)
	require.Equal(t, hook.Again, r.settled[0].Verdict.Kind)
	last := r.settled[0].Verdict.State.History[0]
	require.Equal(t, hook.TimedOut, last.Class)
	require.Equal(t, "attempt_timeout 30000ms", last.Reason)
	require.EqualValues(t, 1, r.settled[0].Verdict.State.Attempts)
}

func TestAStaleOutcomeIsAcknowledgedAndForgotten(t *testing.T) {
	r, old := one(t)
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin)
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1)
	again := r.leases[0]
	require.EqualValues(t, 2, again.Attempt)
	settled := len(r.settled)
	r.reportAs(old.Runner, old, hook.Outcome{Class: hook.Permanent})
	require.Contains(t, r.acks, Ack{old.Runner, old.Lease})
	require.Len(t, r.settled, settled)
	require.Equal(t, 1, r.running())
	r.report(again, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

// An outcome applies only to the attempt that it names.
func TestAnOutcomeOfAnotherAttemptDoesNotApply(t *testing.T) {
	r, l := one(t)
	other := l
	other.Attempt = 7
	r.reportAs(l.Runner, other, hook.Outcome{Class: hook.Permanent})
	require.Empty(t, r.settled)
	stranger := r.join(2, 1)
	r.reportAs(stranger, l, hook.Outcome{Class: hook.Permanent})
	require.Empty(t, r.settled, "nor from a runner that does not hold the lease")
	r.report(l, hook.Outcome{Class: hook.Delivered})
	r.idle()
}

func TestALateSuccessOfAnEarlierLeaseSettles(t *testing.T) {
	for name, when := range map[string]func(*rig){
		"waiting": func(r *rig) {},
		"leased":  func(r *rig) { r.pass(2 * time.Second); require.Len(r.t, r.leases, 1) },
		"ready": func(r *rig) {
			r.configure(func(c *Config) { c.Concurrency = 1 })
			r.accept(sink("u", "b"), 1, 1) // takes the only slot
			r.accept(sink("t", "a"), 1, 1) // keeps the key's queue
			r.pass(2 * time.Second)
		},
		"settling": func(r *rig) { r.pass(2 * time.Second); r.holdSettles = true; r.first(hook.Transient) },
		"rereading": func(r *rig) {
			r.pass(2 * time.Second)
			r.holdReads = true
			r.first(hook.Gone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, old := one(t)
			r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin)
			when(r)
			r.reportAs(old.Runner, old, hook.Outcome{Class: hook.Delivered})
			r.holdSettles, r.holdReads = false, false
			r.pump()
			require.NotContains(t, r.rows, old.Delivery.Ref())
			require.Equal(t, hook.Complete, r.settled[len(r.settled)-1].Verdict.Kind)
			r.deliver()
			r.idle()
		})
	}
}

func TestADropTellsTheRunnerOfALateSuccess(t *testing.T) {
	r, old := one(t)
	r.pass(r.cfg.AttemptTimeout + r.cfg.LeaseMargin)
	r.pass(2 * time.Second)
	second := r.leases[0]
	r.reportAs(old.Runner, old, hook.Outcome{Class: hook.Delivered})
	require.Contains(t, r.drops, Drop{second.Runner, second.Lease})
	require.Contains(t, r.acks, Ack{old.Runner, old.Lease})
}

// An outcome is acknowledged when its settle is committed, not before: the runner keeps it until then.
func TestAnOutcomeIsAcknowledgedWhenItIsSettled(t *testing.T) {
	r, l := one(t)
	r.holdSettles = true
	r.report(l, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.acks)
	r.reportAs(l.Runner, l, hook.Outcome{Class: hook.Delivered}) // again, since the runner has no answer
	require.Empty(t, r.acks)
	require.Len(t, r.settles, 1, "settled once")
	r.holdSettles = false
	r.pump()
	require.Equal(t, []Ack{{l.Runner, l.Lease}}, r.acks)
	r.idle()
}

func TestALostRunnersLeasesEndAfterTheGrace(t *testing.T) {
	r, _ := one(t)
	r.lost(1)
	r.join(2, 10)
	r.pass(r.cfg.Grace - time.Second)
	require.Empty(t, r.settled)
	r.pass(time.Second)
	require.Len(t, r.settled, 1)
	state := r.settled[0].Verdict.State
	require.EqualValues(t, 1, state.Lost)
	require.Zero(t, state.Attempts, "a loss is no attempt")
	require.NotZero(t, state.FirstAttemptAt)
	require.Equal(t, []hook.RunID{runnerID(1)}, r.forgets)
	r.leases = nil
	r.pass(2 * time.Second)
	require.Len(t, r.leases, 1)
	require.Equal(t, runnerID(2), r.leases[0].Runner)
}

// A runner's record goes after its losses are settled: until then a new leader must wait for it.
func TestALostRunnersRecordGoesAfterItsLossIsSettled(t *testing.T) {
	r, _ := one(t)
	r.holdSettles = true
	r.lost(1)
	r.pass(r.cfg.Grace)
	require.Len(t, r.settles, 1)
	require.Empty(t, r.forgets)
	r.holdSettles = false
	r.pump()
	require.Equal(t, []hook.RunID{runnerID(1)}, r.forgets)
}

// A hook that kills its runner ends among the dead letters.
func TestTheThirdLossCountsAsAnAttempt(t *testing.T) {
	r := newRig(t, nil)
	r.policy(func(p *hook.RetryPolicy) { p.MaxAttempts = 2 })
	r.accept(sink("t", "a"), 1, 1)
	attempts := []uint32{0, 0, 1, 2}
	for n := byte(1); n <= 4; n++ {
		r.join(n, 1)
		r.pass(5 * time.Second)
		require.Len(t, r.leases, 1, "loss %d", n)
		r.lost(n)
		r.leases = nil
		r.pass(r.cfg.Grace)
		require.Equal(t, attempts[n-1], r.settled[len(r.settled)-1].Verdict.State.Attempts)
	}
	require.Len(t, r.buried, 1)
	r.idle()
}

func TestAGoodbyeEndsWhenWhatRunsIsReported(t *testing.T) {
	r, l := one(t)
	r.core.Leaving(r.now, runnerID(1))
	r.accept(sink("t", "a"), 1, 1)
	require.Len(t, r.leases, 1, "nothing new is given to it")
	require.Empty(t, r.forgets)
	r.report(l, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.forgets, "its stream stands")
	r.lost(1)
	require.Equal(t, []hook.RunID{runnerID(1)}, r.forgets)
	r.join(2, 1)
	r.deliver()
	r.idle()
}

// One that had said goodbye does not come back: its leases need not wait for the grace.
func TestARunnerThatLeftAndWasLostIsNotWaitedFor(t *testing.T) {
	r, _ := one(t)
	r.core.Leaving(r.now, runnerID(1))
	r.lost(1)
	require.Len(t, r.settled, 1)
	require.EqualValues(t, 1, r.settled[0].Verdict.State.Lost)
}

func TestI5_ARunnerThatReconnectsKeepsItsLeases(t *testing.T) {
	r, l := one(t)
	r.lost(1)
	r.pass(r.cfg.Grace / 2)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(l, 20*time.Second)}})
	r.pass(r.cfg.Grace)
	require.Len(t, r.given, 1)
	require.Empty(t, r.drops)
	r.report(l, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

// A lease that the runner does not know never reached it: it goes back, and nothing counts.
func TestALeaseThatNeverArrivedGoesBack(t *testing.T) {
	r, l := one(t)
	r.lost(1)
	r.leases = nil
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}})
	require.Len(t, r.leases, 1)
	require.NotEqual(t, l.Lease, r.leases[0].Lease)
	require.EqualValues(t, 1, r.leases[0].Attempt)
	require.Empty(t, r.settled)
	require.Equal(t, 1, r.kinds(hook.EventAccepted), "accepted once")
	r.deliver()
	r.idle()
}

// A parked key holds no room.
func TestALeaseThatNeverArrivedGoesBackToTheStoreBehindABreaker(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Breakers.Failures = 1 })
	r.join(1, 1)
	r.join(2, 1)
	r.accept(sink("t", "a"), 2, 1)
	require.Len(t, r.leases, 2)
	failed := r.leases[1]
	if failed.Runner == runnerID(1) {
		failed = r.leases[0]
	}
	r.lost(1)
	r.report(failed, hook.Outcome{Class: hook.Transient})
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 1}})
	require.Zero(t, r.core.Stats().Claimed)
	r.leases = nil
	r.pass(r.cfg.Breakers.Open)
	r.finish(5 * time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestLeasesThatNeverArrivedKeepTheirOrder(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 4)
	ids := r.accept(sink("t", "a"), 4, 1)
	r.lost(1)
	r.leases = nil
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 4}})
	for i, l := range r.leases {
		require.Equal(t, ids[i], l.Delivery.Hook)
	}
}

// What the runner reports with its hello counts like any other report.
func TestARunnerThatReconnectsReportsWhatItFinished(t *testing.T) {
	r, l := one(t)
	r.lost(1)
	r.leases = nil
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Reports: []hook.Report{reportOf(l, hook.Outcome{Class: hook.Delivered})}})
	require.Empty(t, r.rows)
	require.Len(t, r.given, 1)
	require.Equal(t, []Ack{{l.Runner, l.Lease}}, r.acks)
	r.idle()
}

// A second hello on a new stream, before the core heard that the first broke.
func TestAHelloBeforeTheLossOfTheOldStream(t *testing.T) {
	r, l := one(t)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(l, 20*time.Second)}})
	require.Equal(t, 10, r.core.Stats().Slots)
	r.report(l, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

// The grace runs anew with each loss.
func TestAGraceThatARunnerCameBackInEndsNothingLater(t *testing.T) {
	r, l := one(t)
	r.lost(1)
	r.pass(r.cfg.Grace - time.Second)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(l, 15*time.Second)}})
	r.lost(1)
	r.pass(2 * time.Second)
	require.Empty(t, r.settled)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(l, 13*time.Second)}})
	r.report(l, hook.Outcome{Class: hook.Delivered})
	require.Empty(t, r.rows)
	r.idle()
}

func TestARunnerThatComesBackAfterTheGraceIsDropped(t *testing.T) {
	r, l := one(t)
	r.lost(1)
	r.leases = nil
	r.pass(r.cfg.Grace)
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{runningOf(l, 5*time.Second)}})
	require.Contains(t, r.drops, Drop{l.Runner, l.Lease})
	r.finish(5 * time.Second)
	require.Empty(t, r.rows)
	r.idle()
}

func TestARowThatARunnerDoesNotFindIsReadAnew(t *testing.T) {
	t.Run("no row", func(t *testing.T) {
		r, l := one(t)
		delete(r.rows, l.Delivery.Ref())
		r.first(hook.Gone)
		require.Empty(t, r.settled)
		r.idle()
	})
	t.Run("no hook", func(t *testing.T) {
		r, l := one(t)
		r.holdReads = true
		r.first(hook.Gone)
		d := l.Delivery
		r.core.RowsRead(r.now, r.reads[0], []Found{{Delivery: &d}}, r.sources)
		r.pump()
		require.Equal(t, hook.Discard, r.settled[0].Verdict.Kind)
		r.idle()
	})
	t.Run("another version", func(t *testing.T) {
		r, l := one(t)
		d := *r.rows[l.Delivery.Ref()]
		d.Version, d.Attempts = r.tick(), 3
		r.rows[l.Delivery.Ref()] = &d
		r.first(hook.Gone)
		require.EqualValues(t, 4, r.leases[0].Attempt)
		r.deliver()
		r.idle()
	})
	t.Run("the store fails", func(t *testing.T) {
		r, _ := one(t)
		r.holdReads = true
		r.first(hook.Gone)
		r.core.ReadFailed(r.now, r.reads[0])
		r.reads, r.holdReads = nil, false
		r.finish(2 * time.Second)
		require.Empty(t, r.rows)
		r.idle()
	})
}

func TestL12_ASourceThatIsGoneEndsItsRows(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.sources["a"] = Source{}
	r.accept(sink("t", "a"), 3, 1)
	require.Len(t, r.buried, 3)
	r.sources["b"] = Source{Found: true, Incarnation: 2, Policy: hook.DefaultRetryPolicy()}
	r.accept(sink("t", "b"), 3, 1)
	require.Len(t, r.buried, 6)
	for _, v := range r.buried {
		require.Equal(t, "source_gone", v.Reason)
		require.Equal(t, hook.ErrorPermanent, v.Class)
	}
	require.Empty(t, r.given)
	r.idle()
}
