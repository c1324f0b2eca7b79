package core

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"ankusa.dev/services/internal/hook"
)

func (r *rig) laneRows(id laneID) (rows []hook.Delivery) {
	for _, d := range r.rows {
		if d.Ordered && laneOf(&d.Row) == id {
			rows = append(rows, *d)
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Place.Less(rows[j].Place) })
	return rows
}

func (r *rig) answerLaneRead() {
	q := r.laneReads[0]
	r.laneReads = r.laneReads[1:]
	r.core.LanesRead(r.now, q, r.lanes(q), r.sources)
}

// lanes is what the store has for a read of lanes now.
func (r *rig) lanes(q LaneRead) []hook.LaneRows {
	found := make([]hook.LaneRows, len(q.Lanes))
	for i, l := range q.Lanes {
		rows := r.laneRows(laneID{l.Partition, l.Key, l.Lane})
		rows = slices.DeleteFunc(rows, func(d hook.Delivery) bool { return d.Place.Less(l.From) })
		found[i] = cut(l.Lane, rows, q.Limit)
	}
	return found
}

func (r *rig) answerLaneScan() {
	s := r.laneScans[0]
	r.laneScans = r.laneScans[1:]
	names := map[string]bool{}
	for _, d := range r.rows {
		if d.Ordered && d.Key == s.Key && d.Lane >= s.From {
			names[d.Lane] = true
		}
	}
	var found []hook.LaneRows
	for name := range names {
		found = append(found, cut(name, r.laneRows(laneID{s.Partition, s.Key, name}), s.Members))
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Lane < found[j].Lane })
	next, more := "", len(found) > s.Limit
	if more {
		next, found = found[s.Limit].Lane, found[:s.Limit]
	}
	r.core.LanesScanned(r.now, s, found, next, more, r.sources)
}

// members commits members of lanes at a time without naming them, one for each lane that is given.
func (r *rig) members(start hook.Timestamp, lanes ...string) hook.Group {
	g := hook.Group{Key: sink("t", "a"), Start: start, Ordered: true}
	for i, lane := range lanes {
		r.hooks++
		var id hook.ID
		binary.BigEndian.PutUint64(id[8:], r.hooks)
		row := hook.Row{
			Key: g.Key, Hook: id, Due: start, Version: start, Ordered: true, Lane: lane, Place: hook.Place{Start: start, Index: uint32(i)},
		}
		r.rows[row.Ref()] = &hook.Delivery{Row: row, State: hook.State{Incarnation: 1, Size: 1, Sinks: 1}}
		g.Hooks, g.Lanes, g.Members = append(g.Hooks, id), append(g.Lanes, lane), append(g.Members, uint32(i))
	}
	return g
}

// laneNames is n lanes in the order of their texts.
func laneNames(n int) (lanes []string) {
	for i := range n {
		lanes = append(lanes, fmt.Sprintf("b%02d", i))
	}
	return lanes
}

// enter commits and names members.
func (r *rig) enter(lanes ...string) []hook.ID {
	g := r.members(r.tick(), lanes...)
	r.notify(g)
	return g.Hooks
}

// begun is the hooks whose attempts have begun, in order.
func (r *rig) begun() (ids []hook.ID) {
	for i := range r.given {
		ids = append(ids, r.given[i].Delivery.Hook)
	}
	return ids
}
