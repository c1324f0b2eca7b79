package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestCondemnedMembersEndBesideTheHeadThatRuns(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 1)
	for range 40 {
		r.enter("long", "x", "long", "y", "long")
	}
	r.condemn("a")
	require.Len(t, r.purged, 1)
	require.Len(t, r.buried, 199, "all but the head that runs")
	r.first(hook.Transient)
	r.pass(2 * time.Second)
	r.deliver()
	require.Empty(t, r.rows, "the source is still there")
	r.idle()
}

func TestCondemnedMembersEndBehindAHeadThatWaits(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.enter("x", "x", "y")
	r.all(hook.Transient)
	r.condemn("a")
	require.Len(t, r.buried, 3)
	require.Empty(t, r.rows)
	r.pass(time.Minute)
	r.idle()
}

// A lane that nobody holds is found by the wake-up of its head alone.
func TestI2_ALaneWhoseHeadWasCondemnedGoesOn(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x")
	r.first(hook.Transient)
	r.elect(nil)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 1, true)
	r.pump()
	head := r.rows[hook.Ref{Hook: ids[0]}]
	later := r.enter("x")
	require.Zero(t, r.core.Stats().Lanes)
	r.core.Condemned(r.now, Condemnation{ID: 1, SourceID: "a", At: head.Version, Places: []Place{{Key: head.Key, Rows: 2, Ordered: true}}})
	r.pump()
	require.Equal(t, []Purged{{ID: 1, Rows: 1}}, r.purged)
	r.join(1, 10)
	r.finish(time.Minute)
	require.Contains(t, r.buried, hook.Ref{Hook: ids[0]})
	require.Equal(t, later[0], r.given[len(r.given)-1].Delivery.Hook)
	require.Empty(t, r.rows)
	r.idle()
}

func TestMembersThatCameAfterTheOrderAreDelivered(t *testing.T) {
	r := newRig(t, nil)
	r.enter("x", "x")
	r.holdSettles = true
	r.condemn("a")
	later := r.enter("x", "x")
	r.holdSettles = false
	r.pump()
	r.join(1, 10)
	r.deliver()
	require.Equal(t, later, r.begun())
	require.Len(t, r.buried, 2)
	r.idle()
}

func TestL21_ACondemnationOfMembersGoesOnWhenTheStoreIsBack(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 30 })
	for range 40 {
		r.enter("x")
	}
	r.holdReads, r.holdScans = true, true
	r.condemn("a")
	r.answerScan()
	r.pump()
	require.Len(t, r.laneScans, 1)
	r.core.LanesNotScanned(r.now, r.laneScans[0])
	r.laneScans = nil
	r.pass(time.Second)
	require.Len(t, r.laneScans, 1)
	r.answerLaneScan()
	r.pump()
	require.Len(t, r.laneReads, 1, "a lane that goes on")
	r.core.LanesNotRead(r.now, r.laneReads[0])
	r.laneReads = nil
	r.holdReads, r.holdScans = false, false
	r.pass(time.Second)
	require.Len(t, r.purged, 1)
	require.Len(t, r.buried, 40)
	r.idle()
}
