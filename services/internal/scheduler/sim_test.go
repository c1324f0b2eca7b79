package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// The simulation runs whole schedulers, their streams and the local driver in a bubble, on a store that conflicts, fails,
// is slow, goes away and leaves commits undecided, with writers and runners that behave as the real ones do. Each
// scheduler can be cut off from the store for a while, which deposes it.

func TestI2ToI5_SchedulersUnderFaults(t *testing.T) {
	for _, seed := range shellSeeds(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newFaulty(t, seed).run() })
		})
	}
}

// shellSeeds is the seeds to run; ANKUSA_SHELL_SEEDS asks for more, ANKUSA_SHELL_SEED for one.
func shellSeeds(usual int) (seeds []uint64) {
	if one, err := strconv.ParseUint(os.Getenv("ANKUSA_SHELL_SEED"), 10, 64); err == nil {
		return []uint64{one}
	}
	if n, err := strconv.Atoi(os.Getenv("ANKUSA_SHELL_SEEDS")); err == nil {
		usual = n
	}
	for i := range usual {
		seeds = append(seeds, uint64(i)+1)
	}
	return seeds
}

type faulty struct {
	*system
	seed  uint64
	rnd   *rand.Rand
	mu    sync.Mutex
	calm  bool
	nodes []*faultyNode
	acked map[hook.ID]string // by source
	sent  map[hook.Ref]int   // confirmed by the destination
	lost  bool               // a stream, a runner or a leader was lost
	work  sync.WaitGroup
}

type faultyNode struct {
	*node
	port *faultkv.Store
}

func newFaulty(t *testing.T, seed uint64) *faulty {
	inner, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	f := &faulty{
		system: &system{t: t, kv: inner}, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)),
		acked: map[hook.ID]string{}, sent: map[hook.Ref]int{},
	}
	f.store, err = store.Open(t.Context(), inner, store.Options{Partitions: 4})
	require.NoError(t, err)
	return f
}

// faultyStore is a view of the store with faults of its own, until all is calm.
func (f *faulty) faultyStore(salt uint64) (*store.Store, *faultkv.Store) {
	plan := faultkv.Seeded(f.seed*100+salt, faultkv.Rates{
		Unavailable: 0.02, Conflict: 0.02, Bound: 0.01, UndeterminedLanded: 0.02, UndeterminedLost: 0.02,
		Slow: 0.1, MaxLatency: 300 * time.Millisecond,
	})
	port := faultkv.New(f.kv, func(c faultkv.Call) faultkv.Fault {
		if f.isCalm() {
			return faultkv.Fault{}
		}
		return plan(c)
	})
	for {
		if s, err := store.Open(f.t.Context(), port, store.Options{}); err == nil {
			return s, port
		}
	}
}

func (f *faulty) isCalm() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calm
}

// between is a random time.
func (f *faulty) between(low, high time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return low + time.Duration(f.rnd.Int64N(int64(high-low)))
}

func (f *faulty) below(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rnd.IntN(n)
}

func (f *faulty) chance(percent int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.calm && f.rnd.IntN(100) < percent
}

func (f *faulty) run() {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	for i := range 2 {
		st, port := f.faultyStore(uint64(i))
		s := &system{t: f.t, kv: f.kv, store: st}
		f.nodes = append(f.nodes, &faultyNode{node: s.start(testConfig()), port: port})
	}
	f.createSources()
	for i := range 2 {
		f.work.Go(func() { f.runRunner(ctx, uint64(10+i)) })
	}
	var writers sync.WaitGroup
	for i := range 2 {
		writers.Go(func() { f.write(ctx, uint64(20+i)) })
	}
	for range f.below(4) {
		time.Sleep(f.between(time.Second, 10*time.Second))
		f.cutOff(f.nodes[f.below(2)])
	}
	writers.Wait()
	f.mu.Lock()
	f.calm = true
	f.mu.Unlock()
	f.untilSettled()
	cancel()
	f.work.Wait()
	for _, n := range f.nodes {
		n.stop()
	}
	f.judge()
	f.t.Logf("acked %d, deliveries %d, epoch %d", len(f.acked), len(f.sent), f.lastEpoch())
}

// createSources goes past the faults: they are not what is tried here.
func (f *faulty) createSources() {
	n, err := New(testConfig(), Deps{Store: f.store, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	require.NoError(f.t, err)
	for i := range 3 {
		f.source(&node{Scheduler: n}, fmt.Sprintf("s%d", i), i+1)
	}
}

// cutOff takes the store away from one scheduler, for longer than its lease or not.
func (f *faulty) cutOff(n *faultyNode) {
	f.mu.Lock()
	f.lost = true
	f.mu.Unlock()
	n.port.SetDown(true)
	time.Sleep(f.between(time.Second, 15*time.Second))
	n.port.SetDown(false)
}

// untilSettled waits for every row to end: an hour of virtual time is more than enough without faults.
func (f *faulty) untilSettled() {
	for range 3600 {
		time.Sleep(time.Second)
		if f.outstanding() == 0 {
			return
		}
	}
	for p := range f.store.Partitions() {
		_ = f.store.Outstanding(f.t.Context(), uint8(p), func(w store.Work) { f.t.Logf("left: %+v", w) })
	}
	for _, n := range f.nodes {
		if t := n.term.Load(); t != nil {
			f.t.Logf("epoch %d: %+v", t.leader.Epoch(), n.metrics.read())
		}
	}
	f.t.Fatalf("seed %d: I2: rows are stuck", f.seed)
}

// judge compares what was acknowledged with what the destination confirmed and what is dead.
func (f *faulty) judge() {
	dead := map[hook.Ref]bool{}
	page, err := f.store.DeadLetters(f.t.Context(), store.DeadFilter{Limit: 100_000})
	require.NoError(f.t, err)
	for _, e := range page.Entries {
		dead[e.Ref()] = true
	}
	for id, name := range f.acked {
		for sink := range uint16(name[1]-'0') + 1 {
			ref := hook.Ref{Hook: id, Sink: sink}
			require.True(f.t, f.sent[ref] > 0 || dead[ref], "seed %d: I2: %s sink %d was acknowledged and never delivered", f.seed, id, sink)
			if !f.lost {
				require.LessOrEqual(f.t, f.sent[ref], 1, "seed %d: I5: %s sink %d", f.seed, id, sink)
			}
		}
	}
}

// write commits hooks and names them to whoever leads, until it has been acknowledged.
func (f *faulty) write(ctx context.Context, salt uint64) {
	st, _ := f.faultyStore(salt)
	w := &writer{s: &system{t: f.t, kv: f.kv, store: f.store}, w: st.NewWriter(random16())}
	var unnamed []hook.Group
	for range 40 {
		time.Sleep(f.between(0, 500*time.Millisecond))
		name := fmt.Sprintf("s%d", f.between(0, 3))
		batch := make([]store.Incoming, 1+f.between(0, 5))
		tenant := fmt.Sprintf("t%d", f.between(0, 3))
		for i := range batch {
			batch[i] = w.incoming(name, tenant, "")
		}
		partition := st.Partition(tenant, 0)
		accepted, groups, _ := w.w.Commit(ctx, partition, batch)
		unnamed = append(unnamed, groups...)
		for late, err := w.w.Resolve(ctx, partition); ; late, err = w.w.Resolve(ctx, partition) {
			unnamed = append(unnamed, late...)
			if err == nil {
				break
			}
		}
		f.mu.Lock()
		for i, a := range accepted {
			if a.Err == nil && a.Duplicate == nil {
				f.acked[batch[i].Hook.ID] = name
			}
		}
		f.mu.Unlock()
		if f.name(ctx, w, unnamed) {
			unnamed = nil
		}
	}
	for !f.name(ctx, w, unnamed) {
		time.Sleep(100 * time.Millisecond)
	}
}

// name tells a leader; false when none took it in time.
func (f *faulty) name(ctx context.Context, w *writer, groups []hook.Group) bool {
	w.sequence++
	c := wire.Committed{Sequence: w.sequence, Groups: groups}
	for _, n := range f.nodes {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := notifyOnce(ctx, n.node, w, &c)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

func notifyOnce(ctx context.Context, n *node, w *writer, c *wire.Committed) error {
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Notify(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: wire.WriterHelloProto([]hook.RunID{w.w.ID()})}})
	_ = stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c.Proto()}})
	for {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		if ack.GetAcknowledged() >= c.Sequence {
			return nil
		}
	}
}

// simRunner behaves as a sink-runner does: it keeps outcomes until they are settled, and leases until they are over.
type simRunner struct {
	*faulty
	id      hook.RunID
	store   *store.Store
	mu      sync.Mutex
	epoch   uint64
	stream  dispatchv1.DispatchService_LeaseClient
	running map[hook.Lease]*hook.Running
	unacked map[hook.Lease]hook.Report
}

func (f *faulty) runRunner(ctx context.Context, salt uint64) {
	st, _ := f.faultyStore(salt)
	r := &simRunner{
		faulty: f, id: random16(), store: st, running: map[hook.Lease]*hook.Running{}, unacked: map[hook.Lease]hook.Report{},
	}
	for ctx.Err() == nil {
		for _, n := range f.nodes {
			_ = r.serve(ctx, n.node)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

var errOldLeader = errors.New("leader of an earlier epoch")

func (r *simRunner) serve(ctx context.Context, n *node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Lease(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: r.hello().Proto()}}); err != nil {
		return err
	}
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if !r.welcomed(m.GetWelcome().GetEpoch(), stream) {
		return errOldLeader
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.chance(1) {
			r.faulty.mu.Lock()
			r.lost = true
			r.faulty.mu.Unlock()
			return nil
		}
		r.heard(m)
	}
}

func (r *simRunner) hello() *wire.Hello {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &wire.Hello{Runner: r.id, Name: "sim", SinkTypes: []string{"log"}, Credit: wire.Credit{Slots: 20}, HighestEpoch: r.epoch}
	for _, l := range r.running {
		h.Running = append(h.Running, *l)
	}
	for _, p := range r.unacked {
		h.Unacknowledged = append(h.Unacknowledged, p)
	}
	return h
}

func (r *simRunner) welcomed(epoch uint64, stream dispatchv1.DispatchService_LeaseClient) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch < r.epoch {
		return false
	}
	r.epoch, r.stream = epoch, stream
	return true
}

func (r *simRunner) heard(m *dispatchv1.LeaseResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempts, err := wire.ReadAttempts(m.GetAttempts())
	require.NoError(r.t, err)
	for _, a := range attempts {
		if a.Lease.Epoch < r.epoch {
			continue
		}
		r.running[a.Lease] = &hook.Running{
			Lease: a.Lease, Row: a.Row, Attempt: a.Number, Left: a.Timeout,
		}
		r.work.Go(func() { r.attempt(a) })
	}
	for _, l := range append(wire.ReadLeases(m.GetSettled().GetLeases()), wire.ReadLeases(m.GetDrop().GetLeases())...) {
		delete(r.unacked, l)
	}
	for _, l := range wire.ReadLeases(m.GetDrop().GetLeases()) {
		delete(r.running, l)
	}
}

// attempt reads, delivers and reports.
func (r *simRunner) attempt(a wire.Attempt) {
	fetched, err := r.store.Fetch(context.Background(), []hook.Row{a.Row})
	switch {
	case err != nil:
		r.end(a, hook.Outcome{Class: hook.NotStarted, Reason: "store_unavailable"})
	case fetched[0].Epoch > a.Lease.Epoch:
		r.mu.Lock()
		delete(r.running, a.Lease)
		r.mu.Unlock()
	case fetched[0].Delivery == nil || fetched[0].Hook == nil:
		r.end(a, hook.Outcome{Class: hook.Gone})
	default:
		time.Sleep(r.between(0, 200*time.Millisecond))
		r.mu.Lock()
		mine := r.running[a.Lease] != nil
		r.mu.Unlock()
		if !mine {
			return
		}
		if r.chance(10) {
			r.end(a, hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503})
			return
		}
		r.faulty.mu.Lock()
		r.sent[a.Row.Ref()]++
		r.faulty.mu.Unlock()
		r.end(a, delivered)
	}
}

func (r *simRunner) end(a wire.Attempt, o hook.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[a.Lease] == nil {
		return
	}
	delete(r.running, a.Lease)
	p := hook.Report{Lease: a.Lease, Row: a.Row, Attempt: a.Number, Outcome: o}
	r.unacked[a.Lease] = p
	list := wire.ReportsProto([]hook.Report{p})
	_ = r.stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Outcomes{Outcomes: &dispatchv1.Outcomes{Outcomes: list}}})
}

// lastEpoch tells how many terms there were.
func (f *faulty) lastEpoch() uint64 {
	lease, err := f.store.LeaderLease(f.t.Context())
	require.NoError(f.t, err)
	return lease.Epoch
}
