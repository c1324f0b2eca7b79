package scheduler

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// model is what writers, sinks and the operator saw, and in which order.
type model struct {
	steps      uint64
	deliveries map[hook.Ref]*delivery
	lanes      map[laneName]*simLane
	downs      map[hook.SinkKey]time.Time // destinations that fail until then
	acts       []*act
}

func newModel() model {
	return model{
		deliveries: map[hook.Ref]*delivery{}, lanes: map[laneName]*simLane{}, downs: map[hook.SinkKey]time.Time{},
	}
}

// delivery is one hook at one sink.
type delivery struct {
	ref         hook.Ref
	key         hook.SinkKey
	incarnation uint64
	lane        *simLane // nil where the sink was not ordered
	received    uint64   // the step
	acked       uint64   // zero: its sender was not told
	first       time.Time
	sent        int
	dead        bool // as far as somebody has looked
}

type laneName struct {
	key  hook.SinkKey
	text string
}

type simLane struct {
	members []*delivery
	busy    *delivery // at the sink
}

// act is something that the operator did which ends rows with their source.
type act struct {
	source string
	begun  uint64
	done   uint64 // zero while the call is under way
	rows   int64  // that it says it dead-lettered
	sure   bool   // it said so
	// deletes is the incarnation that it may have deleted; zero for none.
	deletes uint64
}

func (f *faulty) step() uint64 {
	f.model.steps++
	return f.model.steps
}

// received notes a hook before it is committed.
func (f *faulty) received(in *store.Incoming) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.step()
	for i := range in.Bindings {
		b := &in.Bindings[i]
		d := &delivery{
			ref: hook.Ref{Hook: in.Hook.ID, Sink: b.Key.Index}, key: b.Key, incarnation: in.Hook.Incarnation, received: at,
		}
		f.model.deliveries[d.ref] = d
		if b.Ordered {
			name := laneName{b.Key, b.Lane}
			if f.model.lanes[name] == nil {
				f.model.lanes[name] = &simLane{}
			}
			d.lane = f.model.lanes[name]
			d.lane.members = append(d.lane.members, d)
		}
	}
}

// acknowledged notes the answer to a sender, for each of its hook's sinks.
func (f *faulty) acknowledged(id hook.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.step()
	for sink := range uint16(math.MaxUint16) {
		d := f.model.deliveries[hook.Ref{Hook: id, Sink: sink}]
		if d == nil {
			return
		}
		d.acked = at
	}
}

// longest is how long after its first attempt one may still begin: the horizon runs from there, and once more behind a
// breaker, and a leader must be there to end it.
const longest = 2*horizon + 10*time.Minute

// began judges an attempt that reaches its sink.
func (f *faulty) began(ref hook.Ref) {
	gone := f.enter(ref)
	if len(gone) == 0 {
		return
	}
	dead := f.dead(gone[0].key)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range dead {
		f.model.deliveries[dead[i].Ref()].dead = true
	}
	for _, before := range gone {
		require.True(f.t, before.dead, "seed %d: I6: %s overtook %s", f.seed, ref.Hook, before.ref.Hook)
	}
}

// enter notes that an attempt reaches its sink, and returns the members of its lane that must be dead by now.
func (f *faulty) enter(ref hook.Ref) (gone []*delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.model.deliveries[ref]
	require.NotNil(f.t, d, "seed %d: an attempt at what nobody sent", f.seed)
	if d.first.IsZero() {
		d.first = time.Now()
	}
	require.LessOrEqual(f.t, time.Since(d.first), longest, "seed %d: I9: %s", f.seed, ref.Hook)
	if d.lane == nil {
		return nil
	}
	require.Nil(f.t, d.lane.busy, "seed %d: I6: two hooks of a lane at once: %s and %+v", f.seed, ref.Hook, d.lane.busy)
	d.lane.busy = d
	for _, m := range d.lane.members {
		switch {
		case m.acked != 0 && m.acked < d.received && m.sent == 0 && !m.dead:
			gone = append(gone, m)
		case d.acked != 0 && d.acked < m.received:
			require.True(f.t, m.first.IsZero(), "seed %d: I6: %s comes again behind %s", f.seed, ref.Hook, m.ref.Hook)
		}
	}
	return gone
}

func (f *faulty) ended(ref hook.Ref, confirmed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.model.deliveries[ref]
	if confirmed {
		d.sent++
	}
	if d.lane != nil {
		d.lane.busy = nil
	}
}

// dead lists dead letters; those of the zero key are all.
func (f *faulty) dead(of hook.SinkKey) []store.DeadEntry {
	page, err := f.store.DeadLetters(f.t.Context(), store.DeadFilter{Tenant: of.Tenant, SourceID: of.SourceID, Limit: 9000})
	require.NoError(f.t, err)
	require.Empty(f.t, page.Next)
	return page.Entries
}

// limits are the highest that were ever in force: what was claimed under them stays.
type limits struct{ rows, tenant int }

func (l *limits) most(cfg *core.Config) {
	l.rows, l.tenant = max(l.rows, cfg.MaxInflight), max(l.tenant, cfg.Default.MaxInflight)
}

// watchWindows judges what leaders hold. Those that came after another may have taken over what it had leased, too.
func (f *faulty) watchWindows(ctx context.Context) {
	for sleep(ctx, 100*time.Millisecond) {
		for _, n := range f.nodes {
			if t := n.term.Load(); t == nil || t.leader.Epoch() > 1 {
				continue
			}
			loads := (&inflight{scheduler: n.Scheduler}).loads()
			f.mu.Lock()
			sum := 0
			for _, l := range loads {
				require.LessOrEqual(f.t, l.Claimed, f.limits.tenant, "seed %d: I7: %s", f.seed, l.Tenant)
				sum += l.Claimed
			}
			require.LessOrEqual(f.t, sum, f.limits.rows, "seed %d: I7", f.seed)
			f.mu.Unlock()
		}
	}
}

// judge compares what was acknowledged with what the destinations confirmed and what is dead.
func (f *faulty) judge() {
	dead := map[hook.Ref]bool{}
	gone := map[string]int64{}
	for _, e := range f.dead(hook.SinkKey{}) {
		dead[e.Ref()] = true
		if e.Reason == "source_gone" {
			gone[e.Key.SourceID]++
			d := f.model.deliveries[e.Ref()]
			require.True(f.t, f.excused(d), "seed %d: %s of %s ends with its source: %+v", f.seed, e.Hook, e.Key, d)
		}
	}
	acked, sent := 0, 0
	for ref, d := range f.model.deliveries {
		sent += d.sent
		if d.acked != 0 {
			acked++
			require.True(f.t, d.sent > 0 || dead[ref], "seed %d: I2: %+v was acknowledged and never ended", f.seed, d)
		}
		if !f.lost {
			require.LessOrEqual(f.t, d.sent, 1, "seed %d: I5: %+v", f.seed, d)
			require.False(f.t, d.sent > 0 && dead[ref], "seed %d: I5: %+v is dead, too", f.seed, d)
		}
	}
	f.accounts(gone)
	f.t.Logf("acked %d, sent %d, dead %d, with their source %v, epoch %d", acked, sent, len(dead), gone, f.lastEpoch())
}

// excused says whether a delivery may have ended with its source.
func (f *faulty) excused(d *delivery) bool {
	return slices.ContainsFunc(f.model.acts, func(a *act) bool {
		return a.source == d.key.SourceID && (d.received < a.done || a.deletes == d.incarnation)
	})
}

// accounts compares what condemnations said with the dead letters that there are.
func (f *faulty) accounts(gone map[string]int64) {
	said, exact := map[string]int64{}, map[string]bool{}
	for source := range gone {
		exact[source] = true
	}
	for _, a := range f.model.acts {
		said[a.source] += a.rows
		exact[a.source] = exact[a.source] && a.sure && a.deletes == 0
	}
	for source, n := range said {
		require.LessOrEqual(f.t, n, gone[source], "seed %d: %s has fewer dead letters than it was said", f.seed, source)
		if exact[source] {
			require.Equal(f.t, n, gone[source], "seed %d: %s", f.seed, source)
		}
	}
}

// lastEpoch tells how many terms there were.
func (f *faulty) lastEpoch() uint64 {
	lease, err := f.store.LeaderLease(f.t.Context())
	require.NoError(f.t, err)
	return lease.Epoch
}
