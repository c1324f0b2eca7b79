package scheduler

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// The simulation runs whole schedulers, their streams and the local driver in a bubble, on a store that conflicts, fails,
// is slow, goes away and leaves commits undecided, with writers and runners that behave as the real ones do, and an
// operator who changes limits and sources, condemns what sources have pending and deletes some. Each scheduler can be cut
// off from the store for a while, which deposes it.
//
// A seed fixes what everybody sets out to do and when, what each attempt comes to, and which calls to the store fail by
// their number. It does not fix who goes first of those that wake at one instant: the order of goroutines, and with it
// the numbers of concurrent calls, the order of messages, the leader where both could lead, and the jitter and the
// identities that schedulers draw for themselves. So a seed that failed fails often, not always: -count helps.

func TestI2ToI9_SchedulersUnderFaults(t *testing.T) {
	for _, seed := range shellSeeds(t, 3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newFaulty(t, seed).run() })
		})
	}
}

// keptShellSeeds once failed.
var keptShellSeeds = []uint64{59, 64, 83, 85, 161, 173}

// shellSeeds is the seeds to run; ANKUSA_SHELL_SEEDS asks for more, as a number or as a range like 51-100, and
// ANKUSA_SHELL_SEED for one.
func shellSeeds(t *testing.T, usual uint64) []uint64 {
	if one := os.Getenv("ANKUSA_SHELL_SEED"); one != "" {
		return []uint64{number(t, one)}
	}
	first, last := uint64(1), usual
	if asked := os.Getenv("ANKUSA_SHELL_SEEDS"); asked != "" {
		from, to, both := strings.Cut(asked, "-")
		if last = number(t, from); both {
			first, last = last, number(t, to)
		}
	}
	seeds := append([]uint64(nil), keptShellSeeds...)
	for seed := first; seed <= last; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}

func number(t *testing.T, text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err)
	return n
}

type faulty struct {
	*system
	seed   uint64
	rnd    *rand.Rand // of the main course alone
	cfg    Config
	nodes  []*faultyNode
	work   sync.WaitGroup
	origin *node // never runs; its calls meet no faults

	mu     sync.Mutex
	calm   bool
	acting bool // the operator is not done
	lost   bool // a stream, a runner or a leader was lost
	limits limits
	model  model
}

type faultyNode struct {
	*node
	port *faultkv.Store
}

func newFaulty(t *testing.T, seed uint64) *faulty {
	inner, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	f := &faulty{system: &system{t: t, kv: inner}, seed: seed, model: newModel()}
	f.rnd = f.random(1)
	f.store, err = store.Open(t.Context(), inner, store.Options{Partitions: 4})
	require.NoError(t, err)
	f.cfg = f.config()
	admin, err := New(f.cfg, Deps{Store: f.store, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	require.NoError(t, err)
	f.origin = &node{Scheduler: admin}
	return f
}

// random is the stream of one who acts.
func (f *faulty) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(f.seed, who)) }

func (f *faulty) config() Config {
	cfg := testConfig()
	cfg.Core.Batch = 1 + f.rnd.IntN(128)
	cfg.Core.MaxInflight = 20 + f.rnd.IntN(200)
	cfg.Core.Default.MaxInflight = 5 + f.rnd.IntN(60)
	cfg.Core.SinkConcurrency = f.rnd.IntN(9)
	if f.rnd.IntN(2) == 0 {
		cfg.Core.Breakers = core.Breakers{Failures: 2 + f.rnd.IntN(5), Open: 5 * time.Second, MaxOpen: time.Minute}
	}
	if f.rnd.IntN(2) == 0 {
		cfg.Core.Batching = map[string]bool{"http": true} // the simulation's runners do not care what a type is
	}
	f.limits.most(&cfg.Core)
	return cfg
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
func between(rnd *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rnd.Int64N(int64(high-low)))
}

// identity is a fresh one.
func identity(rnd *rand.Rand) (id hook.RunID) {
	binary.BigEndian.PutUint64(id[:8], rnd.Uint64())
	binary.BigEndian.PutUint64(id[8:], rnd.Uint64())
	return id
}

func (f *faulty) loses() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
}

func (f *faulty) run() {
	ctx, cancel := context.WithCancel(f.t.Context())
	defer f.work.Wait() // a bubble must not outlive its test, one that fails neither
	defer cancel()
	for i := range 2 {
		st, port := f.faultyStore(uint64(i))
		s := &system{t: f.t, kv: f.kv, store: st}
		f.nodes = append(f.nodes, &faultyNode{node: s.start(f.cfg), port: port})
	}
	f.createSources()
	for i := range 2 {
		f.work.Go(func() { f.runRunner(ctx, uint64(10+i)) })
	}
	f.work.Go(func() { f.watchWindows(ctx) })
	f.acting = true
	var actors sync.WaitGroup
	for i := range 2 {
		actors.Go(func() { f.write(ctx, uint64(20+i)) })
	}
	actors.Go(func() { f.operate(ctx, 30) })
	for range f.rnd.IntN(4) {
		time.Sleep(between(f.rnd, time.Second, 10*time.Second))
		f.cutOff(f.nodes[f.rnd.IntN(2)], between(f.rnd, time.Second, 15*time.Second))
	}
	actors.Wait()
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
}

// cutOff takes the store away from one scheduler, for longer than its lease or not.
func (f *faulty) cutOff(n *faultyNode, d time.Duration) {
	f.loses()
	n.port.SetDown(true)
	time.Sleep(d)
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
		_ = f.store.Outstanding(f.t.Context(), uint8(p), f.show)
	}
	for _, n := range f.nodes {
		if t := n.term.Load(); t != nil {
			f.t.Logf("epoch %d: %+v", t.leader.Epoch(), n.metrics.read())
		}
	}
	f.t.Fatalf("seed %d: I2: rows are stuck", f.seed)
}

// show tells what a sink has left.
func (f *faulty) show(w store.Work) {
	f.t.Logf("left: %+v", w)
	due, err := f.store.ScanDue(f.t.Context(), store.DueScan{Partition: w.Partition, Key: w.Key, Limit: 10})
	f.t.Logf("due: %+v %v", due.Rows, err)
	ordered, err := f.store.ScanLanes(f.t.Context(), store.LaneScan{Partition: w.Partition, Key: w.Key, Lanes: 10, Members: 10})
	f.t.Logf("in lanes: %+v %v", ordered.Lanes, err)
}
