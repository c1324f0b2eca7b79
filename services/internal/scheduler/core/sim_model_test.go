package core

import (
	"container/heap"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// sweepTime is what a world may need for a row that is past its horizon: until leader, runners and windows let it be
// claimed, and until the end is committed.
const sweepTime = 10 * time.Minute

// model is what must hold of new attempts, judged by what the core tells the outside.
type model struct {
	breakers  map[hook.SinkKey]*simBreaker
	quiet     map[hook.SinkKey]hook.Timestamp // nothing of a key may begin before
	relimited bool
}

type simBreaker struct {
	open   bool
	since  hook.Timestamp
	opens  int // in a row
	probes []hook.Lease
}

func (m *model) elected() {
	m.breakers, m.quiet = map[hook.SinkKey]*simBreaker{}, map[hook.SinkKey]hook.Timestamp{}
}

func (m *model) revised(source string) {
	for key := range m.quiet {
		if key.SourceID == source {
			delete(m.quiet, key)
		}
	}
}

// reports notes a destination's wish for a pause, if the report is one that the core has to obey.
func (m *model) reports(w *world, id hook.RunID, p *hook.Report) {
	r := w.core.runners[id]
	if r == nil || r.leases[p.Lease] == nil || p.Outcome.Class != hook.Throttled {
		return
	}
	key := p.Row.Key
	m.quiet[key] = max(m.quiet[key], w.clock().Add(min(p.Outcome.RetryAfter, time.Hour)))
}

// check judges what the core wants after a step. All leases of a step come after its transitions.
func (m *model) check(w *world, e *Effects) {
	for i := range e.Events {
		m.transition(w, &e.Events[i])
	}
	for i := range e.Leases {
		m.lease(w, &e.Leases[i])
	}
}

func (m *model) transition(w *world, e *hook.Event) {
	b := m.breakers[e.Key]
	switch e.Kind {
	case hook.EventBreakerOpened:
		if b == nil {
			b = &simBreaker{}
			m.breakers[e.Key] = b
		}
		require.False(w.t, b.open, "seed %d: an open breaker opens", w.seed)
		b.open, b.since, b.probes = true, e.At, nil
		b.opens = w.core.keys[e.Key].breaker.opens
	case hook.EventBreakerHalfOpen:
		require.True(w.t, b != nil && b.open, "seed %d: half open without having been open", w.seed)
		period := w.cfg.Breakers.Open << min(b.opens-1, 8)
		require.GreaterOrEqual(w.t, e.At.Sub(b.since), min(period, w.cfg.Breakers.MaxOpen), "seed %d: a period was cut short", w.seed)
		b.open = false
	case hook.EventBreakerClosed:
		require.NotNil(w.t, b, "seed %d: a closed breaker closes", w.seed)
		delete(m.breakers, e.Key)
	default:
	}
}

func (m *model) lease(w *world, l *Lease) {
	key := l.Delivery.Key
	k := w.core.keys[key]
	require.GreaterOrEqual(w.t, w.clock(), m.quiet[key], "seed %d: L20: an attempt before the time that was asked for", w.seed)
	if !w.cfg.Batching[key.Type] {
		w.capped(k)
	}
	if k.breaker.state == closed {
		delete(m.breakers, key) // one that had nothing to do was forgotten
		return
	}
	b := m.breakers[key]
	require.False(w.t, b.open, "seed %d: an attempt behind an open breaker", w.seed)
	for _, ref := range b.probes {
		require.False(w.t, w.held(ref), "seed %d: two probes at once", w.seed)
	}
	b.probes = append(b.probes, l.Lease)
}

// capped judges a new attempt by the caps on attempts at once.
func (w *world) capped(k *sinkKey) {
	require.LessOrEqual(w.t, w.core.running, w.core.concurrency(), "seed %d: concurrency", w.seed)
	require.LessOrEqual(w.t, k.tenant.running, w.core.allowed(k.tenant), "seed %d: concurrency of a tenant", w.seed)
	if w.cfg.SinkConcurrency > 0 {
		require.LessOrEqual(w.t, k.running, w.cfg.SinkConcurrency, "seed %d: sink concurrency", w.seed)
	}
}

func (w *world) held(ref hook.Lease) bool {
	for _, r := range w.core.runners {
		if r.leases[ref] != nil {
			return true
		}
	}
	return false
}

// check is what must hold after every step.
func (w *world) check() {
	s := w.core.Stats()
	if w.epoch > 1 {
		return // leases of an earlier term stand, whatever the limits say
	}
	require.LessOrEqual(w.t, s.Claimed, w.cfg.MaxInflight, "seed %d: I7: rows", w.seed)
	if s.ClaimedBytes > w.cfg.MaxInflightBytes {
		require.Equal(w.t, 1, w.withBytes(nil), "seed %d: I7: %d bytes", w.seed, s.ClaimedBytes)
	}
	if w.cfg.Concurrency > 0 {
		require.LessOrEqual(w.t, s.Running, w.cfg.Concurrency, "seed %d: concurrency", w.seed)
	}
	for _, t := range w.core.tenants {
		require.GreaterOrEqual(w.t, t.window.reserved, 0, "seed %d: reservation of a tenant", w.seed)
		if w.model.relimited {
			continue // what was claimed before stays
		}
		require.LessOrEqual(w.t, t.window.rows, t.window.maxRows, "seed %d: I7: rows of a tenant", w.seed)
		if t.window.bytes > t.window.maxBytes {
			require.Equal(w.t, 1, w.withBytes(t), "seed %d: I7: %d bytes of a tenant", w.seed, t.window.bytes)
		}
	}
}

// withBytes counts the rows whose bytes fill the windows, of a tenant or of all: one that is larger than its window is
// claimed alone. Rows that are buried unread fill none.
func (w *world) withBytes(of *tenant) (n int) {
	for _, cl := range w.core.claims {
		if cl.windowed && cl.size > 0 && (of == nil || cl.key.tenant == of) {
			n++
		}
	}
	return n
}

// judge is the model's verdict at the end.
func (w *world) judge() {
	for ref, f := range w.fate {
		require.NotEmpty(w.t, f.ended, "seed %d: I2: %x of %s is stuck: %+v, claim %+v", w.seed, ref.Hook, f.key, w.rows[ref], w.core.claims[ref])
		if w.losses == 0 {
			require.LessOrEqual(w.t, f.sent, 1, "seed %d: I5: delivered %d times", w.seed, f.sent)
		}
		if f.first > 0 { // the horizon runs from the first attempt, and once more behind a breaker
			most := f.first + 2*w.operator.horizons[f.key.SourceID] + sweepTime
			require.LessOrEqual(w.t, f.end, most, "seed %d: I9: %x ended late: %+v", w.seed, ref.Hook, f)
		}
	}
	if w.losses == 0 {
		require.Zero(w.t, w.gone, "seed %d: rows were leased that had ended", w.seed)
	}
	for len(w.agenda) > 0 && w.now < 48*time.Hour {
		next := heap.Pop(&w.agenda).(at)
		w.now = next.when
		next.do()
		w.drain()
	}
	s := w.core.Stats()
	require.Zero(w.t, s.Claimed, "seed %d: claims are left: %+v", w.seed, s)
	require.Zero(w.t, s.Running, "seed %d: attempts are left: %+v", w.seed, s)
	require.Zero(w.t, s.Keys, "seed %d: keys without work are left: %+v", w.seed, s)
	require.Zero(w.t, s.Tenants, "seed %d: tenants without work are left", w.seed)
	require.Zero(w.t, w.core.window.reserved, "seed %d: reservations are left", w.seed)
	require.Zero(w.t, w.core.lanes, "seed %d: lanes are held", w.seed)
	require.Zero(w.t, w.core.blocked, "seed %d: lanes are blocked", w.seed)
	b := &w.core.budget
	require.Zero(w.t, b.rows+b.portions.n+w.core.served.n+w.core.window.soft, "seed %d: scans are left", w.seed)
	for p, l := range b.late {
		require.Zero(w.t, l.scans+l.held.n, "seed %d: partition %d is late", w.seed, p)
	}
	require.Empty(w.t, w.core.claims, "seed %d: claims are left", w.seed)
	require.Nil(w.t, w.operator.stands, "seed %d: a condemnation is never carried out", w.seed)
	require.Empty(w.t, w.core.purging.pages, "seed %d: pages are left", w.seed)
}
