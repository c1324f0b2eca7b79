package core

import (
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func (w *world) sorted() []*hook.Delivery {
	out := make([]*hook.Delivery, 0, len(w.rows))
	for _, d := range w.rows {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool { return rowLess(out[i], out[j]) })
	return out
}

func rowLess(a, b *hook.Delivery) bool {
	if a.Due != b.Due {
		return a.Due < b.Due
	}
	return string(a.Hook[:]) < string(b.Hook[:])
}

// read takes its snapshot at once or later, and answers later still.
func (w *world) read(r Read) {
	w.later(100*time.Millisecond, func() {
		if w.chance(3) {
			w.later(time.Second, func() { w.core.ReadFailed(w.clock(), r) })
			return
		}
		found := make([]Found, len(r.Rows))
		for i, row := range r.Rows {
			if d := w.rows[row.Ref()]; d != nil && (d.Due == row.Due || d.Ordered) {
				found[i] = Found{Delivery: w.clone(d), Hook: true}
			}
		}
		sources := maps.Clone(w.sources)
		w.later(2*time.Second, func() { w.core.RowsRead(w.clock(), r, found, sources) })
	})
}

func (w *world) clone(d *hook.Delivery) *hook.Delivery {
	c := *d
	return &c
}

func (w *world) scan(s Scan) {
	w.later(100*time.Millisecond, func() {
		if w.chance(3) {
			w.later(time.Second, func() { w.core.ScanFailed(w.clock(), s) })
			return
		}
		var page []hook.Delivery
		more := false
		for _, d := range w.sorted() {
			behind := d.Due > s.From || d.Due == s.From && (s.After == hook.ID{} || string(d.Hook[:]) > string(s.After[:]))
			if d.Key != s.Key || d.Partition != s.Partition || !behind {
				continue
			}
			if row, ok := wakeUp(d); ok {
				page = append(page, row)
			}
			if more = len(page) == s.Limit; more {
				break
			}
		}
		sources := maps.Clone(w.sources)
		w.later(2*time.Second, func() { w.core.Scanned(w.clock(), s, page, more, sources) })
	})
}

// settle commits a batch; the answer comes later. What a deposed leader had under way lands or does not.
func (w *world) settle(batch []hook.Settlement) {
	if len(batch) == 0 {
		return
	}
	epoch, batch := w.epoch, slices.Clone(batch)
	w.in(w.within(500*time.Millisecond), func() {
		if w.epoch != epoch || !w.stood && w.rnd.IntN(2) == 0 {
			return // fenced, or lost with its leader
		}
		start := w.ts()
		for _, s := range batch {
			w.apply(s, start)
		}
		w.later(time.Second, func() { w.core.Settled(w.clock(), start, batch) })
	})
}

func (w *world) apply(s hook.Settlement, start hook.Timestamp) {
	ref := s.Delivery.Ref()
	d, f := w.rows[ref], w.fate[ref]
	require.NotNil(w.t, d, "seed %d: I3: a settled row is settled again", w.seed)
	require.Equal(w.t, d.Version, s.Delivery.Version, "seed %d: a settle names a version that is not the store's", w.seed)
	switch s.Verdict.Kind {
	case hook.Again:
		n := *d
		n.State, n.Due, n.Version = s.Verdict.State, s.Verdict.Due, start
		w.rows[ref] = &n
	case hook.Complete:
		require.Positive(w.t, f.sent, "seed %d: I3: completed without a confirmation", w.seed)
		f.ended, f.end = "delivered", w.now
		delete(w.rows, ref)
	case hook.Bury:
		f.ended, f.end = "dead", w.now
		delete(w.rows, ref)
	default:
		w.t.Fatalf("seed %d: verdict %d", w.seed, s.Verdict.Kind)
	}
	at := place{s.Delivery.Key, s.Delivery.Partition}
	w.position[at] = max(w.position[at], s.Position)
}
