package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// A scan that the store does not answer holds page and windows for a moment, and no longer. Its answer comes late, and takes
// no more than there is room for.
func TestL14_AScanWithoutAnAnswerKeepsNobodyFromThePage(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 4, 4, 4 })
	r.holdScans = true
	stuck, other := sink("stuck", "a"), sink("other", "a")
	r.core.Backlog(r.now, 0, stuck, r.store(stuck, 10, 1).Start, 0, false)
	r.pump()
	require.Len(t, r.scans, 1)
	late := r.scans[0]
	r.core.Backlog(r.now, 0, other, r.store(other, 3, 1).Start, 0, false)
	r.pump()
	require.Len(t, r.scans, 1, "the page is dealt out")
	r.pass(overdue)
	require.Len(t, r.scans, 2)
	require.Equal(t, other, r.scans[1].Key)
	r.scans = r.scans[1:]
	for range 3 {
		r.answerScan()
		r.pump()
	}
	require.Equal(t, 3, r.core.Stats().Claimed)
	r.scans = append([]Scan{late}, r.scans...)
	r.answerScan()
	r.pump()
	require.Equal(t, 4, r.core.Stats().Claimed, "the window's")
	r.holdScans = false
	r.join(4, 4)
	for range 13 {
		r.first(hook.Delivered)
	}
	r.idle()
}

// Each scan takes longer than it counts for, and the next one has its rows reserved by then.
func TestL14_AnswersThatAlwaysComeLateAreTaken(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 4, 4, 4 })
	r.holdScans = true
	for _, name := range []string{"a", "b"} {
		key := sink("t", name)
		r.core.Backlog(r.now, 0, key, r.store(key, 10, 1).Start, 0, false)
	}
	r.pump()
	r.pass(overdue)
	require.Len(t, r.scans, 2)
	r.pass(overdue / 2)
	r.answerScan()
	r.pump()
	require.Equal(t, 4, r.core.Stats().Claimed)
	r.answerScan()
	r.pump()
	require.Equal(t, 4, r.core.Stats().Claimed, "the window is full")
}

// The scans of a partition that is stuck take the page once. Whoever is left of it waits until one of them has ended.
func TestL14_APartitionThatIsStuckTakesThePageOnce(t *testing.T) {
	const stuck, rows = 500, 600
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 128, 2000, 1000 })
	r.holdScans = true
	r.core.gate.open = false
	for i := range stuck {
		r.core.Backlog(r.now, 1, sink(fmt.Sprintf("stuck%03d", i), "a"), r.now, 0, false)
	}
	well := sink("well", "a")
	r.core.Backlog(r.now, 0, well, r.store(well, rows, 1).Start, 0, false)
	r.core.gate.open = true
	r.pump()
	r.pass(overdue)
	for r.answerWell() {
		r.pump()
	}
	require.Equal(t, rows, r.core.Stats().Claimed)
	asked := r.asked[len(r.asked)-1]
	require.Equal(t, well, asked.Key)
	require.Equal(t, 128, asked.Limit, "nobody shares the page with it")

	require.Positive(t, r.core.Stats().Overdue)
	failed := map[string]bool{}
	for range 20 { // each fails once, and the next one has its turn
		for len(r.scans) > 0 {
			s := r.scans[0]
			r.scans = r.scans[1:]
			if failed[s.Key.Tenant] {
				r.core.Scanned(r.now, s, nil, false, nil)
			} else {
				failed[s.Key.Tenant] = true
				r.core.ScanFailed(r.now, s)
			}
			r.pump()
		}
		r.pass(pause)
	}
	require.Len(t, failed, stuck)
	require.Equal(t, 1, r.core.Stats().Tenants)
	require.Zero(t, r.core.Stats().Overdue)
}

// A tenant that is alone has the whole page, and many sinks to ask for.
func TestL14_APartitionWithoutAnAnswerIsAskedForLittle(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 128, 4000, 1000 })
	r.holdScans = true
	for i := range 2 * PartitionReads {
		r.core.Backlog(r.now, 1, sink("stuck", fmt.Sprint(i)), r.now, 0, false)
	}
	r.pump()
	well := sink("well", "a")
	r.core.Backlog(r.now, 0, well, r.store(well, 300, 1).Start, 0, false)
	for range 2 {
		r.pass(overdue)
		for r.answerWell() {
			r.pump()
		}
	}
	require.Equal(t, 300, r.core.Stats().Claimed)
	require.Equal(t, 128, r.asked[0].Limit)
	for _, s := range r.asked[1:] {
		if s.Partition == 1 {
			require.LessOrEqual(t, s.Limit, 128/PartitionReads)
		}
	}
}

// They take one place of the partition's, however many they are.
func TestL13_LanesThatAreReadTogetherAreOneRead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.Default.MaxInflight = 32, 40 })
	r.join(1, 40)
	r.enter(laneNames(60)...)
	r.holdReads, r.holdScans, r.holdSettles = true, true, true
	for range 20 {
		r.first(hook.Delivered)
	}
	r.holdSettles = false
	r.pump()
	require.Len(t, r.laneReads, 1)
	require.GreaterOrEqual(t, len(r.laneReads[0].Lanes), PartitionReads)
	r.pass(overdue)
	require.Equal(t, 1, r.core.Stats().Overdue)
	other := sink("u", "a")
	r.core.Backlog(r.now, 0, other, r.store(other, 1, 1).Start, 0, false)
	r.pump()
	require.Len(t, r.scans, 1)
	r.holdReads, r.holdScans = false, false
	r.pump()
	r.deliver()
	r.idle()
}

// The lanes that a scan found late lead, though a newer one has their room reserved.
func TestL14_LanesThatAreFoundLateLead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight, c.Default.MaxInflight = 4, 4 })
	r.holdScans = true
	g := r.members(r.tick(), "a", "b", "c", "d", "e", "f")
	r.core.Backlog(r.now, 0, g.Key, 0, 6, true)
	r.pump()
	for len(r.laneScans) == 0 {
		r.answerScan()
		r.pump()
	}
	plain := sink("t", "b")
	r.core.Backlog(r.now, 0, plain, r.store(plain, 4, 1).Start, 0, false)
	r.pass(overdue)
	require.NotEmpty(t, r.scans)
	r.answerLaneScan()
	r.pump()
	require.Positive(t, r.core.Stats().Claimed)
	r.holdScans = false
	r.pump()
	r.join(1, 4)
	r.deliver()
	r.idle()
}

// A condemnation needs room, too, and comes back for it.
func TestL21_ACondemnationDoesNotWaitForAScanWithoutAnAnswer(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 4 })
	r.holdScans = true
	r.core.Backlog(r.now, 1, sink("t", "stuck"), r.now, 0, false)
	r.pump()
	require.Len(t, r.scans, 1)
	r.store(sink("t", "a"), 1, 1)
	r.condemn("a")
	require.Len(t, r.scans, 1)
	r.now = r.wake
	r.core.Tick(r.now)
	r.pump()
	require.Len(t, r.scans, 2)
	require.Equal(t, "a", r.scans[1].Key.SourceID)
}

// answerWell answers a scan of the partition that is well; false where there is none.
func (r *rig) answerWell() bool {
	i := slices.IndexFunc(r.scans, func(s Scan) bool { return s.Partition == 0 })
	if i < 0 {
		return false
	}
	r.scans[0], r.scans[i] = r.scans[i], r.scans[0]
	r.answerScan()
	return true
}

// A scan may hold the whole window of its tenant, whose other sinks wait for that alone.
func TestL14_TheWindowOfAScanWithoutAnAnswerComesBackByItself(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 4 })
	r.holdScans = true
	r.core.Backlog(r.now, 1, sink("t", "stuck"), r.now, 0, false)
	r.pump()
	began := r.now
	well := sink("t", "well")
	r.core.Backlog(r.now, 0, well, r.store(well, 1, 1).Start, 0, false)
	r.pump()
	require.Len(t, r.scans, 1)
	require.NotZero(t, r.wake)
	r.now = r.wake
	r.core.Tick(r.now)
	r.pump()
	require.Len(t, r.scans, 2)
	require.Equal(t, overdue, r.now.Sub(began))
}

// Rows of several partitions are read apart, however they are named.
func TestL14_AReadIsOfOnePartition(t *testing.T) {
	r := newRig(t, nil)
	r.holdReads = true
	var groups []hook.Group
	for i := range 20 {
		g := r.store(sink("t", "a"), 1, 1)
		g.Partition = uint8(i % 2)
		groups = append(groups, g)
	}
	r.core.Notified(r.now, groups)
	r.pump()
	require.Len(t, r.reads, 2)
	for p, read := range r.reads {
		require.Len(t, read.Rows, 10)
		for _, row := range read.Rows {
			require.EqualValues(t, p, row.Partition)
		}
	}
}

// A backlog from the beginning of time on is one, too.
func TestI2_ABacklogThatIsNamedDuringAScanIsFound(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	a := sink("t", "a")
	r.store(a, 1, 1)
	r.holdScans = true
	r.core.Backlog(r.now, 0, a, r.store(a, 1, 1).Start, 0, false)
	r.pump()
	require.Len(t, r.scans, 1)
	r.core.Backlog(r.now, 0, a, 0, 0, false)
	r.holdScans = false
	r.pump()
	r.first(hook.Delivered)
	r.first(hook.Delivered)
	r.idle()
}

// Lanes that are read take the page as scans do, and one Take is all that the driver calls.
func TestL14_TheTimeOfAReadOfLanesIsWatched(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.Default.MaxInflight = 32, 40 })
	r.join(1, 40)
	r.enter(laneNames(60)...)
	r.holdSettles = true
	for range 20 {
		r.first(hook.Delivered)
	}
	r.core.Settled(r.now, r.tick(), r.settles)
	e := r.core.Take()
	require.Len(t, e.LaneReads, 1)
	require.Equal(t, r.now.Add(overdue), e.Wake)
}
