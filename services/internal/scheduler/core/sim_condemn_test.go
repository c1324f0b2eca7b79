package core

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// operator condemns what sources have pending, now and then, deletes some of them behind it, and creates them anew.
type operator struct {
	rnd      *rand.Rand
	plans    int
	last     uint64
	stands   *order // of this term
	closed   map[string]bool
	horizons map[string]time.Duration // whether or not the source is there
}

// order is a condemnation as the model sees it.
type order struct {
	id      uint64
	source  string
	at      hook.Timestamp
	pending map[hook.Ref]hook.Timestamp // rows that stood when it was given, and their versions
	held    map[hook.Ref]bool           // of these: a runner has them, or had since
	ended   int
	deletes bool
}

// kept says whether the world is one of a seed that is kept: it stays as it was.
func (w *world) kept() bool {
	return slices.Contains(keptSeeds, w.seed) || slices.Contains(keptLaneSeeds, w.seed)
}

func (w *world) plan() {
	o := &w.operator
	o.rnd = rand.New(rand.NewPCG(w.seed, 17))
	o.closed, o.horizons = map[string]bool{}, map[string]time.Duration{}
	for id, s := range w.sources {
		o.horizons[id] = s.Policy.Horizon
	}
	if !w.kept() {
		o.plans = max(0, o.rnd.IntN(8)-2)
	}
}

func (w *world) condemnAtTimes(busy time.Duration) {
	for range w.operator.plans {
		source := w.sinks[w.operator.rnd.IntN(len(w.sinks))].SourceID
		w.in(time.Duration(w.operator.rnd.Int64N(int64(busy))), func() { w.retireSource(source) })
	}
}

// retireSource condemns a source's rows, and closes it before where it is to be deleted.
func (w *world) retireSource(source string) {
	if w.operator.closed[source] {
		return
	}
	if w.operator.rnd.IntN(2) == 0 {
		w.condemn(source, false)
		return
	}
	w.operator.closed[source] = true
	w.in(6*time.Second, func() { w.condemn(source, true) }) // as long as commits may be under way
}

// condemn gives the order to whoever leads, instead of the one before; its caller tries until it is carried out, or
// gives up.
func (w *world) condemn(source string, deletes bool) {
	if !w.stood {
		w.in(time.Second, func() { w.condemn(source, deletes) })
		return
	}
	o := &w.operator
	if o.stands != nil {
		w.pardon()
	}
	o.last++
	d := &order{
		id: o.last, source: source, at: w.ts(), deletes: deletes,
		pending: map[hook.Ref]hook.Timestamp{}, held: map[hook.Ref]bool{},
	}
	for ref, row := range w.rows {
		if row.Key.SourceID == source {
			d.pending[ref] = row.Version
		}
	}
	o.stands = d
	w.core.Condemned(w.clock(), Condemnation{ID: d.id, SourceID: source, At: d.at, Places: w.places(source)})
	if o.rnd.IntN(5) == 0 {
		w.in(time.Duration(o.rnd.Int64N(int64(5*time.Second))), func() {
			if o.stands == d {
				w.pardon()
			}
		})
	}
}

func (w *world) pardon() {
	d := w.operator.stands
	w.operator.stands = nil
	w.core.Pardoned(w.clock(), d.id)
	w.operator.closed[d.source] = false
}

// places is where the counters say that a source has rows. They may promise too many.
func (w *world) places(source string) (out []Place) {
	rows := map[place]int64{}
	for _, d := range w.rows {
		rows[place{d.Key, d.Partition}]++
	}
	for _, key := range w.sinks {
		for p := range w.spread {
			if at := (place{key, p}); key.SourceID == source && rows[at] > 0 {
				promised := rows[at] + int64(max(0, w.operator.rnd.IntN(6)-3))
				out = append(out, Place{p, key, w.position[at], promised, w.lanes.ordered[key]})
			}
		}
	}
	return out
}

// elected begins a term: what was asked of the last is forgotten with it, and asked again at once or not.
func (o *operator) elected(w *world) {
	d := o.stands
	o.stands = nil
	switch {
	case d == nil && o.plans > 0 && o.rnd.IntN(3) == 0:
		source := w.sinks[o.rnd.IntN(len(w.sinks))].SourceID
		w.in(0, func() { w.retireSource(source) })
	case d == nil:
	case o.rnd.IntN(2) == 0:
		w.in(0, func() { w.condemn(d.source, d.deletes) })
	default:
		o.closed[d.source] = false
	}
}

// check judges what the core makes of the order that stands: each row that ends with its source may, and when it is said
// to be carried out, no row stands that it was about.
func (o *operator) check(w *world, e *Effects) {
	o.hold(w)
	for _, list := range [][]hook.Settlement{e.Settles, e.Urgent} {
		for i := range list {
			o.settles(w, &list[i])
		}
	}
	for _, p := range e.Purged {
		d := o.stands
		require.NotNil(w.t, d, "seed %d: carried out what nobody ordered", w.seed)
		require.Equal(w.t, Purged{d.id, d.ended}, p, "seed %d", w.seed)
		for ref, version := range d.pending {
			row := w.rows[ref]
			left := row != nil && row.Version == version && !d.held[ref]
			require.False(w.t, left, "seed %d: %x of %s outlives its condemnation: %+v", w.seed, ref.Hook, d.source, w.core.claims[ref])
		}
		o.stands = nil
		w.carriedOut(d)
	}
}

// hold notes the rows that runners have: they are left to settle.
func (o *operator) hold(w *world) {
	if o.stands == nil {
		return
	}
	for ref := range o.stands.pending {
		if cl := w.core.claims[ref]; cl != nil && (cl.state == leased || cl.state == rereading || cl.adopted != nil || cl.lease != hook.Lease{}) {
			o.stands.held[ref] = true
		}
	}
}

// settles judges a row that ends with its source.
func (o *operator) settles(w *world, s *hook.Settlement) {
	if s.Verdict.Kind != hook.Bury || s.Verdict.Reason != "source_gone" {
		return
	}
	row := &s.Delivery
	if d := o.stands; d != nil && row.Key.SourceID == d.source && row.Version <= d.at {
		d.ended++
		return
	}
	src := w.sources[row.Key.SourceID]
	require.False(w.t, src.Found && src.Incarnation == row.Incarnation, "seed %d: %x ends with %s, which stands", w.seed, row.Hook, row.Key)
}

// carriedOut goes on with the deletion, and creates the source again a while later.
func (w *world) carriedOut(d *order) {
	if !d.deletes {
		return
	}
	was := w.sources[d.source]
	w.sources[d.source] = Source{}
	w.core.Forsaken(w.clock(), d.source, was.Incarnation)
	again := time.Minute
	if w.operator.rnd.IntN(2) == 0 {
		again = 100 * time.Millisecond
	}
	w.in(time.Duration(w.operator.rnd.Int64N(int64(again))), func() {
		was.Incarnation++
		w.sources[d.source] = was
		w.operator.closed[d.source] = false
	})
}

// stillOwed is the model's verdict on an attempt that reaches a sink: its delivery has not ended.
func (w *world) stillOwed(l *Lease) {
	f := w.fate[l.Delivery.Ref()]
	require.Empty(w.t, f.ended, "seed %d: %x is attempted after its end", w.seed, l.Delivery.Hook)
}
