package core

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// The simulation drives the core through a virtual world of its own: a store with snapshots and late commits, writers
// whose notifies are late or lost, runners that crash and come back, destinations with outages, and leaders that are
// deposed while their effects are still under way. What the world records is judged by a model that knows nothing of
// how the core works.

// simSeeds is the number of seeds that a test runs; ANKUSA_SIM_SEEDS asks for more, ANKUSA_SIM_SEED for one.
func simSeeds(t *testing.T, usual int) []uint64 {
	if one, err := strconv.ParseUint(os.Getenv("ANKUSA_SIM_SEED"), 10, 64); err == nil {
		return []uint64{one}
	}
	if n, err := strconv.Atoi(os.Getenv("ANKUSA_SIM_SEEDS")); err == nil {
		usual = n
	}
	seeds := append([]uint64(nil), keptSeeds...)
	for i := range usual {
		seeds = append(seeds, uint64(i)+1)
	}
	return seeds
}

// keptSeeds once failed.
var keptSeeds = []uint64{}

func TestI2ToI9_TheCoreAgainstAModel(t *testing.T) {
	for _, seed := range simSeeds(t, 50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newWorld(t, seed).run() })
	}
}

// at is one thing that happens in the world.
type at struct {
	when time.Duration
	n    int
	do   func()
}

type agenda []at

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].when < a[j].when || a[i].when == a[j].when && a[i].n < a[j].n
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(at)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

type world struct {
	t      *testing.T
	seed   uint64
	rnd    *rand.Rand
	now    time.Duration
	logic  uint64
	agenda agenda
	n      int
	steps  map[string]int // effects by kind

	cfg      Config
	calm     bool // no more faults
	core     *Core
	epoch    uint64
	term     int
	stood    bool
	wake     time.Duration
	rows     map[hook.Ref]*hook.Delivery // the store
	fate     map[hook.Ref]*fate
	sinks    []hook.SinkKey
	down     map[hook.SinkKey]bool
	runners  []*simRunner
	records  map[RunnerID]time.Duration
	losses   int // of runners, connections or leases
	position map[hook.SinkKey]hook.Timestamp
}

// fate is what the model knows of a delivery.
type fate struct {
	key       hook.SinkKey
	committed bool
	sent      int // successes at the destination
	attempts  int
	ended     string
}

type simRunner struct {
	w         *world
	id        RunnerID
	slots     int
	alive     bool
	connected bool
	term      int // of the stream
	running   map[LeaseRef]*simAttempt
	unacked   map[LeaseRef]Report
}

type simAttempt struct {
	Lease
	deadline time.Duration
}

const simStart = 1_700_000_000_000

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7)), rows: map[hook.Ref]*hook.Delivery{},
		fate: map[hook.Ref]*fate{}, down: map[hook.SinkKey]bool{}, records: map[RunnerID]time.Duration{},
		position: map[hook.SinkKey]hook.Timestamp{}, steps: map[string]int{},
	}
	w.cfg = Config{
		Batch: 1 + w.rnd.IntN(64), MaxInflight: 4 + w.rnd.IntN(200), MaxInflightBytes: int64(1000 + w.rnd.IntN(100_000)),
		Concurrency: w.rnd.IntN(20), SinkConcurrency: w.rnd.IntN(9),
		Breakers:       Breakers{Failures: w.rnd.IntN(6), Open: 30 * time.Second, MaxOpen: 5 * time.Minute},
		AttemptTimeout: 30 * time.Second, LeaseMargin: 5 * time.Second, Grace: 15 * time.Second,
	}
	w.cfg.Default = Limits{MaxInflight: 1 + w.cfg.MaxInflight/4, MaxInflightBytes: w.cfg.MaxInflightBytes / 2, Concurrency: w.rnd.IntN(6)}
	for tenant := range 1 + w.rnd.IntN(5) {
		for source := range 1 + w.rnd.IntN(3) {
			w.sinks = append(w.sinks, hook.SinkKey{Tenant: fmt.Sprintf("t%d", tenant), SourceID: fmt.Sprintf("s%d", source), Type: "http"})
		}
	}
	return w
}

// ts is a fresh timestamp of the store's clock.
func (w *world) ts() hook.Timestamp {
	w.logic++
	return hook.FromMillis(simStart+w.now.Milliseconds()) | hook.Timestamp(w.logic&(1<<18-1))
}

func (w *world) clock() hook.Timestamp { return hook.FromMillis(simStart + w.now.Milliseconds()) }

func (w *world) in(d time.Duration, do func()) {
	w.n++
	heap.Push(&w.agenda, at{w.now + d, w.n, do})
}

// within is a random time up to most, often short.
func (w *world) within(most time.Duration) time.Duration {
	if w.rnd.IntN(3) > 0 {
		most /= 50
	}
	return time.Duration(w.rnd.Int64N(int64(most) + 1))
}

func (w *world) chance(percent int) bool { return !w.calm && w.rnd.IntN(100) < percent }

func (w *world) run() {
	w.elect()
	for range 1 + w.rnd.IntN(3) {
		w.addRunner()
	}
	busy := time.Duration(1+w.rnd.IntN(600)) * time.Second
	for range 1 + w.rnd.IntN(300) {
		w.in(time.Duration(w.rnd.Int64N(int64(busy))), w.commit)
	}
	for range w.rnd.IntN(8) {
		w.in(time.Duration(w.rnd.Int64N(int64(busy))), w.mishap)
	}
	w.in(busy, w.settleDown)
	for len(w.agenda) > 0 && w.now < 24*time.Hour {
		next := heap.Pop(&w.agenda).(at)
		w.now = next.when
		next.do()
		w.drain()
		if w.calm && len(w.rows) == 0 {
			break
		}
	}
	w.judge()
}

// settleDown ends all faults: from here on everything must come to an end.
func (w *world) settleDown() {
	w.calm = true
	clear(w.down)
	if !w.stood {
		w.elect()
	}
	alive := 0
	for _, r := range w.runners {
		if r.alive {
			alive++
			r.connect()
		}
	}
	if alive == 0 {
		w.addRunner()
	}
	w.recount()
}

func (w *world) mishap() {
	switch w.rnd.IntN(5) {
	case 0:
		key := w.sinks[w.rnd.IntN(len(w.sinks))]
		w.down[key] = true
		w.in(time.Duration(w.rnd.IntN(300))*time.Second, func() { delete(w.down, key) })
	case 1:
		w.depose()
	case 2:
		w.anyRunner((*simRunner).crash)
	case 3:
		w.anyRunner((*simRunner).disconnect)
	case 4:
		w.addRunner()
	}
}

func (w *world) anyRunner(do func(*simRunner)) {
	if len(w.runners) > 0 {
		do(w.runners[w.rnd.IntN(len(w.runners))])
	}
}

// elect begins a term: the fence is bumped before anything is read.
func (w *world) elect() {
	w.epoch++
	w.term++
	w.stood = true
	known := map[RunnerID]time.Duration{}
	for id, longest := range w.records {
		known[id] = longest
	}
	w.core = New(w.cfg, Term{Epoch: w.epoch, Bump: w.ts(), Known: known, Now: w.clock()}, w.rnd.Float64)
	w.wake = -1
	w.recount()
	w.drain()
}

// depose ends a term without a word; a standby takes over a while later.
func (w *world) depose() {
	if !w.stood {
		return
	}
	w.losses++
	w.stood = false
	w.term++
	for _, r := range w.runners {
		r.drop()
	}
	w.in(time.Duration(5+w.rnd.IntN(10))*time.Second, func() {
		if !w.stood {
			w.elect()
		}
	})
}

// recount is what a take-over and a lost writer bring about: every key with rows is named from its position.
func (w *world) recount() {
	if !w.stood {
		return
	}
	rows := map[hook.SinkKey]int64{}
	for _, d := range w.rows {
		rows[d.Key]++
	}
	for _, key := range w.sinks {
		if rows[key] > 0 {
			w.core.Backlog(w.clock(), 0, key, w.position[key], rows[key])
		}
	}
}

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

// commit stores up to a few hooks of one key, perhaps late, and names them, perhaps late or never.
func (w *world) commit() {
	key := w.sinks[w.rnd.IntN(len(w.sinks))]
	start := w.ts()
	g := Group{Key: key, Start: start}
	rows := make([]*hook.Delivery, 1+w.rnd.IntN(6))
	for i := range rows {
		var id hook.ID
		for b := range id {
			id[b] = byte(w.rnd.IntN(256))
		}
		g.Hooks = append(g.Hooks, id)
		rows[i] = &hook.Delivery{
			Row:   hook.Row{Key: key, Hook: id, Due: start, Version: start},
			State: hook.State{Incarnation: 1, Size: uint32(w.rnd.IntN(3000)), Sinks: 1},
		}
	}
	late := time.Duration(0)
	if w.chance(20) {
		late = w.within(5 * time.Second)
	}
	w.in(late, func() {
		for _, d := range rows {
			w.rows[d.Ref()] = d
			w.fate[d.Ref()] = &fate{key: key, committed: true}
		}
		if w.chance(3) {
			w.in(writerAway, w.recount)
			return
		}
		w.name(g)
	})
}

const writerAway = 5 * time.Second

// name delivers a notify to whoever leads; the writer goes on until somebody does.
func (w *world) name(g Group) {
	w.in(w.within(2*time.Second), func() {
		if !w.stood {
			w.name(g)
			return
		}
		w.core.Notified(w.clock(), []Group{g})
		if w.chance(10) {
			w.core.Notified(w.clock(), []Group{g})
		}
	})
}

// drain carries out what the core wants.
func (w *world) drain() {
	for w.stood {
		e := w.core.Take()
		w.check()
		w.count(&e)
		for _, r := range e.Reads {
			w.read(r)
		}
		for _, s := range e.Scans {
			w.scan(s)
		}
		w.settle(e.Settles)
		for _, l := range e.Leases {
			w.lease(l)
		}
		for _, a := range e.Acks {
			w.told(a.Runner, func(r *simRunner) { delete(r.unacked, a.Lease) })
		}
		for _, d := range e.Drops {
			w.told(d.Runner, func(r *simRunner) { delete(r.running, d.Lease); delete(r.unacked, d.Lease) })
		}
		for _, id := range e.Forget {
			delete(w.records, id)
		}
		if e.Wake == 0 {
			return
		}
		if e.Wake > w.clock() {
			w.alarm(time.Duration(e.Wake.Millis()-simStart+1) * time.Millisecond)
			return
		}
		w.core.Tick(w.clock())
	}
}

// count fails a world that goes round and round.
func (w *world) count(e *Effects) {
	w.steps["take"]++
	w.steps["read"] += len(e.Reads)
	w.steps["scan"] += len(e.Scans)
	w.steps["lease"] += len(e.Leases)
	w.steps["settle"] += len(e.Settles)
	if w.steps["take"] > 300_000 {
		w.t.Fatalf("seed %d: goes round after %s: %v, %+v, %d rows in the store", w.seed, w.now, w.steps, w.core.Stats(), len(w.rows))
	}
}

func (w *world) alarm(when time.Duration) {
	if w.wake == when {
		return
	}
	w.wake = when
	term := w.term
	w.in(max(0, when-w.now), func() {
		if w.term == term {
			w.wake = -1
			w.core.Tick(w.clock())
		}
	})
}

// later runs an answer of the store's, if the term still stands.
func (w *world) later(most time.Duration, do func()) {
	term := w.term
	w.in(w.within(most), func() {
		if w.term == term {
			do()
		}
	})
}

func simSources() map[string]Source {
	p := hook.DefaultRetryPolicy()
	out := map[string]Source{}
	for i := range 3 {
		out[fmt.Sprintf("s%d", i)] = Source{Found: true, Incarnation: 1, Policy: p}
	}
	return out
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
			if d := w.rows[row.Ref()]; d != nil && d.Due == row.Due {
				found[i] = Found{Delivery: w.clone(d), Hook: true}
			}
		}
		w.later(2*time.Second, func() { w.core.RowsRead(w.clock(), r, found, simSources()) })
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
			if d.Key != s.Key || !behind {
				continue
			}
			page = append(page, *d)
			if more = len(page) == s.Limit; more {
				break
			}
		}
		w.later(2*time.Second, func() { w.core.Scanned(w.clock(), s, page, more, simSources()) })
	})
}

// settle commits a batch; the answer comes later. What a deposed leader had under way lands or does not.
func (w *world) settle(batch []Settle) {
	if len(batch) == 0 {
		return
	}
	epoch := w.epoch
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

func (w *world) apply(s Settle, start hook.Timestamp) {
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
		f.ended = "delivered"
		delete(w.rows, ref)
	case hook.Bury:
		f.ended = "dead"
		delete(w.rows, ref)
	default:
		w.t.Fatalf("seed %d: verdict %d", w.seed, s.Verdict.Kind)
	}
	w.position[s.Delivery.Key] = max(w.position[s.Delivery.Key], s.Position)
}

// check is what must hold after every step.
func (w *world) check() {
	s := w.core.Stats()
	if w.epoch > 1 {
		return // leases of an earlier term stand, whatever the limits say
	}
	require.LessOrEqual(w.t, s.Claimed, w.cfg.MaxInflight, "seed %d: I7: rows", w.seed)
	if s.Claimed > 1 {
		require.LessOrEqual(w.t, s.ClaimedBytes, w.cfg.MaxInflightBytes, "seed %d: I7: bytes", w.seed)
	}
	if w.cfg.Concurrency > 0 {
		require.LessOrEqual(w.t, s.Running, w.cfg.Concurrency, "seed %d: concurrency", w.seed)
	}
	for _, t := range w.core.tenants {
		require.LessOrEqual(w.t, t.window.rows, w.cfg.Default.MaxInflight, "seed %d: I7: rows of a tenant", w.seed)
		require.GreaterOrEqual(w.t, t.window.reserved, 0, "seed %d: reservation of a tenant", w.seed)
	}
	for _, k := range w.core.keys {
		if w.cfg.SinkConcurrency > 0 {
			require.LessOrEqual(w.t, k.running, w.cfg.SinkConcurrency, "seed %d: sink concurrency", w.seed)
		}
	}
}

// judge is the model's verdict at the end.
func (w *world) judge() {
	for ref, f := range w.fate {
		require.NotEmpty(w.t, f.ended, "seed %d: I2: %x of %s is stuck: %+v, claim %+v", w.seed, ref.Hook, f.key, w.rows[ref], w.core.claims[ref])
		if w.losses == 0 {
			require.LessOrEqual(w.t, f.sent, 1, "seed %d: I5: delivered %d times", w.seed, f.sent)
		}
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
	require.Zero(w.t, w.core.scanned, "seed %d: scans are left", w.seed)
	require.Empty(w.t, w.core.claims, "seed %d: claims are left", w.seed)
}

func (w *world) addRunner() {
	r := &simRunner{w: w, slots: 1 + w.rnd.IntN(10), alive: true, running: map[LeaseRef]*simAttempt{}, unacked: map[LeaseRef]Report{}}
	for b := range r.id {
		r.id[b] = byte(w.rnd.IntN(256))
	}
	w.runners = append(w.runners, r)
	r.connect()
}

func (w *world) told(id RunnerID, do func(*simRunner)) {
	for _, r := range w.runners {
		if r.id == id && r.connected && r.alive {
			do(r)
		}
	}
}

// connect says hello to whoever leads, and tries again until it is heard.
func (r *simRunner) connect() {
	w := r.w
	if !r.alive || r.connected {
		return
	}
	if !w.stood {
		w.in(w.within(4*time.Second), r.connect)
		return
	}
	r.connected, r.term = true, w.term
	w.records[r.id] = 35 * time.Second
	h := Hello{Types: []string{"http"}, Slots: r.slots}
	for ref, a := range r.running {
		h.Running = append(h.Running, Running{Lease: ref, Row: a.Delivery.Row, Attempt: a.Attempt, Left: max(0, a.deadline-w.now)})
	}
	sort.Slice(h.Running, func(i, j int) bool { return leaseLess(h.Running[i].Lease, h.Running[j].Lease) })
	for _, p := range r.unacked {
		h.Reports = append(h.Reports, p)
	}
	sort.Slice(h.Reports, func(i, j int) bool { return leaseLess(h.Reports[i].Lease, h.Reports[j].Lease) })
	w.core.Joined(w.clock(), r.id, h)
}

func leaseLess(a, b LeaseRef) bool { return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.ID < b.ID }

// drop loses the stream without a word to the core, which is gone.
func (r *simRunner) drop() {
	if r.connected {
		r.connected = false
		r.w.in(r.w.within(4*time.Second), r.connect)
	}
}

func (r *simRunner) disconnect() {
	if !r.connected || !r.alive {
		return
	}
	r.w.losses++
	r.connected = false
	r.w.core.Lost(r.w.clock(), r.id)
	r.w.in(r.w.within(30*time.Second), r.connect)
}

func (r *simRunner) crash() {
	if !r.alive {
		return
	}
	r.w.losses++
	r.alive = false
	if r.connected && r.w.stood {
		r.w.core.Lost(r.w.clock(), r.id)
	}
	r.connected = false
	clear(r.running)
	clear(r.unacked)
	r.w.in(r.w.within(10*time.Second), r.w.addRunner)
}

// lease pushes an attempt, unless the stream breaks first.
func (w *world) lease(l Lease) {
	w.told(l.Runner, func(r *simRunner) {
		term := r.term
		w.in(w.within(20*time.Millisecond), func() {
			if r.alive && r.connected && r.term == term {
				r.start(l)
			}
		})
	})
}

func (r *simRunner) start(l Lease) {
	w := r.w
	require.Less(w.t, len(r.running), r.slots, "seed %d: credit", w.seed)
	r.running[l.Ref] = &simAttempt{Lease: l, deadline: w.now + 30*time.Second}
	d := w.rows[l.Delivery.Ref()]
	if w.epoch > l.Ref.Epoch {
		delete(r.running, l.Ref)
		return
	}
	if d == nil || d.Version != l.Delivery.Version {
		r.finish(l, hook.Outcome{Class: hook.Gone})
		return
	}
	f := w.fate[l.Delivery.Ref()]
	f.attempts++
	took := w.within(2 * time.Second)
	if w.chance(2) {
		took = 31 * time.Second
	}
	fails := w.down[l.Delivery.Key] || w.chance(5)
	w.in(min(took, 30*time.Second), func() {
		if !r.alive || r.running[l.Ref] == nil {
			return
		}
		o := hook.Outcome{Class: hook.Delivered, Duration: took}
		switch {
		case took > 30*time.Second:
			o = hook.Outcome{Class: hook.TimedOut, Reason: "attempt_timeout 30000ms"}
		case fails:
			o = hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503}
		default:
			f.sent++
		}
		r.finish(l, o)
	})
}

func (r *simRunner) finish(l Lease, o hook.Outcome) {
	delete(r.running, l.Ref)
	p := Report{Lease: l.Ref, Row: l.Delivery.Row, Attempt: l.Attempt, Outcome: o}
	r.unacked[l.Ref] = p
	term := r.term
	r.w.in(r.w.within(20*time.Millisecond), func() {
		if r.alive && r.connected && r.term == term {
			r.w.core.Outcomes(r.w.clock(), r.id, []Report{p})
		}
	})
}
