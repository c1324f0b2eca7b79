package core

import (
	"encoding/binary"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// rig drives a core by hand through virtual time. Its store answers at once, unless a test holds the answers back; what
// the core sends to runners piles up until the test reports on it.
type rig struct {
	t       *testing.T
	core    *Core
	cfg     Config
	epoch   uint64
	now     hook.Timestamp
	wake    hook.Timestamp
	hooks   uint64
	rows    map[hook.Ref]*hook.Delivery
	sources map[string]Source

	holdReads, holdScans, holdSettles bool
	reads                             []Read
	scans                             []Scan
	settles                           []hook.Settlement
	laneReads                         []LaneRead
	laneScans                         []LaneScan

	leases          []Lease // that nobody has reported on
	given           []Lease // all
	acks            []Ack
	drops           []Drop
	forgets         []hook.RunID
	events          []hook.Event
	asked           []Scan // all scans
	settled, urgent []hook.Settlement
	buried          map[hook.Ref]hook.Verdict
	purged          []Purged
	keyOf           map[hook.Ref]hook.SinkKey // of all rows
}

const rigStart = 1_800_000_000_000

func rigConfig() Config {
	return Config{
		Batch: 12, MaxInflight: 1000, MaxInflightBytes: 1 << 30, SinkConcurrency: 8,
		AttemptTimeout: 30 * time.Second, LeaseMargin: 5 * time.Second, Grace: 15 * time.Second,
		Breakers: Breakers{Failures: 3, Open: 30 * time.Second, MaxOpen: 5 * time.Minute},
		Default:  Limits{MaxInflight: 1000, MaxInflightBytes: 1 << 30, Concurrency: 100},
	}
}

// newRig has no runner yet.
func newRig(t *testing.T, change func(*Config)) *rig {
	r := &rig{
		t: t, cfg: rigConfig(), now: hook.FromMillis(rigStart), rows: map[hook.Ref]*hook.Delivery{},
		sources: map[string]Source{}, buried: map[hook.Ref]hook.Verdict{}, keyOf: map[hook.Ref]hook.SinkKey{},
	}
	if change != nil {
		change(&r.cfg)
	}
	p := hook.DefaultRetryPolicy()
	p.Jitter, p.Base, p.Max = false, time.Second, time.Minute
	for _, id := range []string{"a", "b", "c"} {
		r.sources[id] = Source{Found: true, Incarnation: 1, Policy: p}
	}
	r.elect(nil)
	return r
}

// elect begins a term, whose store is what the last one left.
func (r *rig) elect(known map[hook.RunID]time.Duration) {
	r.epoch++
	r.reads, r.scans, r.settles, r.leases, r.laneReads, r.laneScans = nil, nil, nil, nil, nil, nil
	bump := r.tick()
	r.core = New(r.cfg, Term{Epoch: r.epoch, Bump: bump, Known: known, Now: r.now}, func() float64 { return 0.5 })
	r.pump()
}

// tick is a fresh timestamp of the store's.
func (r *rig) tick() hook.Timestamp { r.now++; return r.now }

func sink(tenant, source string) hook.SinkKey {
	return hook.SinkKey{Tenant: tenant, SourceID: source, Type: "http"}
}

// store commits rows of one size without naming them.
func (r *rig) store(key hook.SinkKey, n, size int) hook.Group {
	g := hook.Group{Key: key, Start: r.tick()}
	for range n {
		r.hooks++
		var id hook.ID
		binary.BigEndian.PutUint64(id[8:], r.hooks)
		row := hook.Row{Key: key, Hook: id, Due: g.Start, Version: g.Start}
		r.keyOf[row.Ref()] = key
		r.rows[row.Ref()] = &hook.Delivery{Row: row, State: hook.State{Incarnation: 1, Size: uint32(size), Sinks: 1}}
		g.Hooks = append(g.Hooks, id)
	}
	return g
}

// accept commits and names rows.
func (r *rig) accept(key hook.SinkKey, n, size int) []hook.ID {
	g := r.store(key, n, size)
	r.notify(g)
	return g.Hooks
}

func (r *rig) notify(g hook.Group) {
	r.core.Notified(r.now, []hook.Group{g})
	r.pump()
}

// backlog names a key's rows by the counters alone.
func (r *rig) backlog(key hook.SinkKey, from hook.Timestamp, rows int) {
	r.core.Backlog(r.now, 0, key, from, int64(rows), false)
	r.pump()
}

func runnerID(n byte) hook.RunID { return hook.RunID{15: n} }

func (r *rig) join(n byte, slots int, types ...string) hook.RunID {
	return r.rejoin(n, Hello{Credit: hook.Credit{Slots: slots}, Types: append(types, "http")})
}

func (r *rig) rejoin(n byte, h Hello) hook.RunID {
	if h.Types == nil {
		h.Types = []string{"http"}
	}
	r.core.Joined(r.now, runnerID(n), h)
	r.pump()
	return runnerID(n)
}

// report ends an attempt.
func (r *rig) report(l Lease, o hook.Outcome) {
	for i := range r.leases {
		if r.leases[i].Lease == l.Lease {
			r.leases = append(r.leases[:i], r.leases[i+1:]...)
			break
		}
	}
	r.reportAs(l.Runner, l, o)
}

// reportAs reports on a lease through some runner's stream.
func (r *rig) reportAs(id hook.RunID, l Lease, o hook.Outcome) {
	r.core.Outcomes(r.now, id, []hook.Report{reportOf(l, o)})
	r.pump()
}

func reportOf(l Lease, o hook.Outcome) hook.Report {
	return hook.Report{Lease: l.Lease, Row: l.Delivery.Row, Attempt: l.Attempt, Outcome: o}
}

func runningOf(l Lease, left time.Duration) hook.Running {
	return hook.Running{Lease: l.Lease, Row: l.Delivery.Row, Attempt: l.Attempt, Left: left}
}

// first ends the attempt that has run for the longest.
func (r *rig) first(class hook.Class) {
	require.NotEmpty(r.t, r.leases, "nothing runs")
	r.report(r.leases[0], hook.Outcome{Class: class})
}

// all ends what runs now, not what that makes room for.
func (r *rig) all(class hook.Class) {
	for _, l := range append([]Lease(nil), r.leases...) {
		r.report(l, hook.Outcome{Class: class})
	}
}

// deliver lets attempts succeed until nothing runs.
func (r *rig) deliver() {
	for len(r.leases) > 0 {
		r.first(hook.Delivered)
	}
}

// finish lets everything that runs or comes due within a time succeed.
func (r *rig) finish(d time.Duration) {
	for until := r.now.Add(d); r.now < until; r.pass(time.Second) {
		r.deliver()
	}
	r.deliver()
}

// running counts the attempts of some keys; of all where none is named.
func (r *rig) running(keys ...hook.SinkKey) (n int) {
	for i := range r.leases {
		for _, k := range keys {
			if r.leases[i].Delivery.Key == k {
				n++
			}
		}
	}
	if len(keys) == 0 {
		n = len(r.leases)
	}
	return n
}

// pass lets time go by, stopping wherever the core asked to be woken.
func (r *rig) pass(d time.Duration) {
	until := r.now.Add(d)
	for r.wake != 0 && r.wake <= until {
		r.now = max(r.now, r.wake)
		r.core.Tick(r.now)
		r.pump()
	}
	r.now = max(r.now, until)
	r.core.Tick(r.now)
	r.pump()
}

// pump carries effects out until there are none.
func (r *rig) pump() {
	for range 100_000 {
		e := r.core.Take()
		r.check()
		r.keep(&e)
		r.wake = e.Wake
		due := e.Wake != 0 && e.Wake <= r.now
		if due {
			r.core.Tick(r.now)
		}
		if !r.answer() && !due && quiet(&e) {
			return
		}
	}
	r.t.Fatalf("goes round: %+v", r.core.Stats())
}

func quiet(e *Effects) bool {
	return len(e.Leases)+len(e.Acks)+len(e.Drops)+len(e.Forget)+len(e.Events)+len(e.Reads)+len(e.Scans)+len(e.Settles)+len(e.Urgent)+len(e.LaneReads)+len(e.LaneScans) == 0
}

func (r *rig) keep(e *Effects) {
	r.leases, r.given = append(r.leases, e.Leases...), append(r.given, e.Leases...)
	r.acks, r.drops = append(r.acks, e.Acks...), append(r.drops, e.Drops...)
	r.forgets, r.events = append(r.forgets, e.Forget...), append(r.events, e.Events...)
	r.asked = append(r.asked, e.Scans...)
	r.purged, r.urgent = append(r.purged, e.Purged...), append(r.urgent, e.Urgent...)
	r.reads, r.scans, r.settles = append(r.reads, e.Reads...), append(r.scans, e.Scans...), append(append(r.settles, e.Settles...), e.Urgent...)
	r.laneReads, r.laneScans = append(r.laneReads, e.LaneReads...), append(r.laneScans, e.LaneScans...)
	for _, d := range e.Drops {
		for i := range r.leases {
			if r.leases[i].Lease == d.Lease {
				r.leases = append(r.leases[:i], r.leases[i+1:]...)
				break
			}
		}
	}
}

// answer lets the store answer what is not held back, and says whether anything was.
func (r *rig) answer() (some bool) {
	for len(r.reads) > 0 && !r.holdReads {
		r.answerRead()
		some = true
	}
	for len(r.laneReads) > 0 && !r.holdReads {
		r.answerLaneRead()
		some = true
	}
	for len(r.laneScans) > 0 && !r.holdScans {
		r.answerLaneScan()
		some = true
	}
	for len(r.scans) > 0 && !r.holdScans {
		r.answerScan()
		some = true
	}
	if len(r.settles) > 0 && !r.holdSettles {
		r.answerSettles()
		some = true
	}
	return some
}

func (r *rig) answerRead() {
	q := r.reads[0]
	r.reads = r.reads[1:]
	r.core.RowsRead(r.now, q, r.look(q), r.sources)
}

func (r *rig) look(q Read) []Found {
	found := make([]Found, len(q.Rows))
	for i, row := range q.Rows {
		if d := r.rows[row.Ref()]; d != nil && (d.Due == row.Due || d.Ordered) {
			c := *d
			found[i] = Found{Delivery: &c, Hook: true}
		}
	}
	return found
}

func (r *rig) answerScan() {
	s := r.scans[0]
	r.scans = r.scans[1:]
	page, more := r.page(s)
	r.core.Scanned(r.now, s, page, more, r.sources)
}

// page is what the store has for a scan now.
func (r *rig) page(s Scan) (page []hook.Delivery, more bool) {
	for _, d := range r.rows {
		behind := d.Due > s.From || d.Due == s.From && (s.After == hook.ID{} || string(d.Hook[:]) > string(s.After[:]))
		if d.Key == s.Key && d.Partition == s.Partition && behind {
			if row, ok := wakeUp(d); ok {
				page = append(page, row)
			}
		}
	}
	sort.Slice(page, func(i, j int) bool { return rowLess(&page[i], &page[j]) })
	if len(page) >= s.Limit {
		return page[:s.Limit], true
	}
	return page, false
}

func (r *rig) answerSettles() {
	batch := r.settles
	r.settles = nil
	start := r.commit(batch)
	r.core.Settled(r.now, start, batch)
}

// commit applies settles to the store without an answer.
func (r *rig) commit(batch []hook.Settlement) hook.Timestamp {
	start := r.tick()
	for _, s := range batch {
		r.settled = append(r.settled, s)
		ref := s.Delivery.Ref()
		require.NotNil(r.t, r.rows[ref], "settles a row that is not there")
		require.Equal(r.t, r.rows[ref].Version, s.Delivery.Version)
		switch s.Verdict.Kind {
		case hook.Again:
			d := *r.rows[ref]
			d.State, d.Due, d.Version = s.Verdict.State, s.Verdict.Due, start
			r.rows[ref] = &d
		case hook.Bury:
			r.buried[ref] = s.Verdict
			delete(r.rows, ref)
		default:
			delete(r.rows, ref)
		}
	}
	return start
}

// check is what must hold after every step.
func (r *rig) check() {
	s := r.core.Stats()
	if r.epoch == 1 {
		require.LessOrEqual(r.t, s.Claimed, max(r.cfg.MaxInflight, 1), "I7: rows")
		if s.Claimed > 1 {
			require.LessOrEqual(r.t, s.ClaimedBytes, r.cfg.MaxInflightBytes, "I7: bytes")
		}
	}
	require.GreaterOrEqual(r.t, s.Running, 0)
	require.GreaterOrEqual(r.t, s.Waiting, 0)
	require.GreaterOrEqual(r.t, s.BreakersOpen, 0)
	require.GreaterOrEqual(r.t, r.core.window.reserved, 0)
}

// idle says that the core holds nothing at all.
func (r *rig) idle() {
	r.t.Helper()
	s := r.core.Stats()
	require.Zero(r.t, s.Lanes+s.LanesBlocked+s.Claimed+s.Running+s.Runnable+s.Waiting+s.Keys+s.Tenants+s.Backlogs+s.BreakersOpen, "%+v", s)
	require.Empty(r.t, r.core.claims)
	require.Zero(r.t, r.core.window.reserved)
	require.Zero(r.t, r.core.budget.rows+r.core.budget.portions.n+r.core.served.n+r.core.window.soft)
	for p, l := range r.core.budget.late {
		require.Zero(r.t, l.scans+l.held.n, "partition %d", p)
	}
}

// kinds counts events.
func (r *rig) kinds(k hook.EventKind) (n int) {
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

func (r *rig) configure(change func(*Config)) {
	change(&r.cfg)
	r.core.Configure(r.now, r.cfg)
	r.pump()
}

func throttledFor(d time.Duration) hook.Outcome {
	return hook.Outcome{Class: hook.Throttled, RetryAfter: d, Status: 429}
}
