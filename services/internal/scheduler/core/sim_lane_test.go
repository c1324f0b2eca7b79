package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// laneWorld is what a world knows of ordered sinks.
type laneWorld struct {
	rnd     *rand.Rand
	ordered map[hook.SinkKey]bool
	mixed   map[hook.SinkKey]bool // they were not always ordered, or some ingests do not know yet
	spread  int                   // lanes of a sink
	members map[laneID][]*fate
}

// order makes some sinks of a world ordered. Worlds that were kept are left as they were.
func (w *world) order() {
	l := &w.lanes
	l.rnd = rand.New(rand.NewPCG(w.seed, 11))
	l.ordered, l.members = map[hook.SinkKey]bool{}, map[laneID][]*fate{}
	l.spread = 1 + l.rnd.IntN(6)
	if l.rnd.IntN(4) == 0 || slices.Contains(keptSeeds, w.seed) {
		return
	}
	for _, key := range w.sinks {
		l.ordered[key] = l.rnd.IntN(2) == 0
	}
	if l.mixed = map[hook.SinkKey]bool{}; w.kept() {
		return
	}
	for _, key := range w.sinks {
		l.mixed[key] = l.ordered[key] && l.rnd.IntN(3) == 0
	}
}

// binds says whether the rows of a commit are members of lanes.
func (w *world) binds(key hook.SinkKey) bool {
	return w.lanes.ordered[key] && (!w.lanes.mixed[key] || w.lanes.rnd.IntN(2) == 0)
}

// enlist makes a fresh row of an ordered sink a member of one of its lanes.
func (w *world) enlist(g *hook.Group, d *hook.Delivery) {
	d.Ordered, d.Lane = true, fmt.Sprintf("l%d", w.lanes.rnd.IntN(w.lanes.spread))
	d.Place = hook.Place{Start: g.Start, Index: uint32(len(g.Hooks) - 1)}
	g.Ordered, g.Lanes, g.Members = true, append(g.Lanes, d.Lane), append(g.Members, d.Place.Index)
}

// readLanes takes its snapshot at once or later, and answers later still.
func (w *world) readLanes(r LaneRead) {
	w.later(100*time.Millisecond, func() {
		if w.chance(3) {
			w.later(time.Second, func() { w.core.LanesNotRead(w.clock(), r) })
			return
		}
		found := make([]hook.LaneRows, len(r.Lanes))
		for i, l := range r.Lanes {
			rows := w.laneRows(laneID{l.Partition, l.Key, l.Lane})
			rows = rows[sort.Search(len(rows), func(i int) bool { return !rows[i].Place.Less(l.From) }):]
			found[i] = cut(l.Lane, rows, r.Limit)
		}
		sources := maps.Clone(w.sources)
		w.later(2*time.Second, func() { w.core.LanesRead(w.clock(), r, found, sources) })
	})
}

func cut(lane string, rows []hook.Delivery, limit int) hook.LaneRows {
	n := min(len(rows), limit)
	return hook.LaneRows{Lane: lane, Rows: rows[:n:n], More: n < len(rows)}
}

func (w *world) scanLanes(s LaneScan) {
	w.later(100*time.Millisecond, func() {
		if w.chance(3) {
			w.later(time.Second, func() { w.core.LanesNotScanned(w.clock(), s) })
			return
		}
		var found []hook.LaneRows
		next, more := "", false
		for i := range w.lanes.spread {
			lane := fmt.Sprintf("l%d", i)
			rows := w.laneRows(laneID{s.Partition, s.Key, lane})
			if lane < s.From || len(rows) == 0 {
				continue
			}
			if len(found) == s.Limit {
				next, more = lane, true
				break
			}
			found = append(found, cut(lane, rows, s.Members))
		}
		sources := maps.Clone(w.sources)
		w.later(2*time.Second, func() { w.core.LanesScanned(w.clock(), s, found, next, more, sources) })
	})
}

// laneRows is what the store has of a lane, in order.
func (w *world) laneRows(id laneID) (rows []hook.Delivery) {
	for _, d := range w.rows {
		if d.Ordered && laneOf(&d.Row) == id {
			rows = append(rows, *d)
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Place.Less(rows[j].Place) })
	return rows
}

// wakeUp is the row that a scan of due rows finds for a member that waits; false where there is none.
func wakeUp(d *hook.Delivery) (hook.Delivery, bool) {
	if !d.Ordered {
		return *d, true
	}
	return hook.Delivery{Row: hook.Row{
		Partition: d.Partition, Key: d.Key, Hook: d.Hook, Due: d.Due, Ordered: true, Lane: d.Lane, Place: d.Place,
	}}, d.Waits()
}

// inOrder is the model's verdict on an attempt that reaches an ordered sink: nothing else of its lane is under way, and
// whatever was acknowledged before it was received has ended.
func (w *world) inOrder(row *hook.Row) {
	if !row.Ordered {
		return
	}
	for _, r := range w.runners {
		for _, a := range r.running {
			same := a.Delivery.Ordered && laneOf(&a.Delivery.Row) == laneOf(row) && a.Delivery.Hook != row.Hook
			require.False(w.t, same && r.alive, "seed %d: I6: two hooks of a lane at once: %x and %x", w.seed, row.Hook, a.Delivery.Hook)
		}
	}
	f := w.fate[row.Ref()]
	for _, before := range w.lanes.members[laneOf(row)] {
		if before.acked < f.received {
			require.NotEmpty(w.t, before.ended, "seed %d: I6: %x overtook %+v", w.seed, row.Hook, before)
		}
	}
}
