package scheduler

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// The isolation of tenants is measured on a whole scheduler with its streams and the local driver in a bubble. A call to
// the store takes its time there, processors take none: what a lag shows is waiting alone.

const (
	viewTakes   = time.Millisecond
	commitTakes = 2 * time.Millisecond
	// burst is how often a writer commits what has come.
	commitEvery = 10 * time.Millisecond
)

// crowd is one tenant's load and what its destination does with it.
type crowd struct {
	tenant, source string
	rate           int // hooks per second
	takes          time.Duration
	outcome        hook.Class
}

// street is a scheduler with one writer for each crowd and one runner.
type street struct {
	*system
	node   *node
	runner *deliverer

	mu       sync.Mutex
	accepted map[hook.ID]time.Time
}

func newStreet(t *testing.T, cfg Config, crowds []crowd) *street {
	inner, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	quick, err := store.Open(t.Context(), inner, store.Options{})
	require.NoError(t, err)
	port := faultkv.New(inner, func(c faultkv.Call) faultkv.Fault {
		return faultkv.Fault{Latency: map[faultkv.Op]time.Duration{faultkv.View: viewTakes, faultkv.Update: commitTakes}[c.Op]}
	})
	slow, err := store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	s := &street{
		system: &system{t: t, kv: port, store: slow}, accepted: map[hook.ID]time.Time{},
	}
	admin, err := New(cfg, Deps{Store: quick, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	require.NoError(t, err)
	for _, c := range crowds {
		s.source(&node{Scheduler: admin}, c.source, 1)
	}
	s.node = s.start(cfg)
	s.node.leads(t)
	s.runner = newDeliverer(s.node, newRunner(t), crowds)
	return s
}

// run lets the crowds come for a time and returns the lags of the first, from the commit to the attempt's beginning, and
// the most rows that the last was seen to hold.
func (s *street) run(crowds []crowd, d time.Duration) (lags []time.Duration, held int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	var coming sync.WaitGroup
	for _, c := range crowds {
		coming.Go(func() { s.come(ctx, c) })
	}
	show := newInflight(s.node.Scheduler)
	for ctx.Err() == nil {
		time.Sleep(commitEvery)
		for _, l := range show.loads() {
			if l.Tenant == crowds[len(crowds)-1].tenant {
				held = max(held, l.Claimed)
			}
		}
	}
	coming.Wait()
	time.Sleep(time.Second)
	return s.lags(crowds[0]), held
}

// Scans that wait for one partition hold up no row of another, which may be named or not.
func TestL14_APartitionThatIsStuckHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hang := stuckSystem(t)
		quick := s.start(testConfig())
		quick.leads(t)
		s.source(quick, "demo", 1)
		w := s.writer()
		stuck := s.store.Partition(hook.DefaultTenant, 0)
		for i, behind := 0, 0; behind < 3*core.PartitionReads; i++ {
			if tenant := fmt.Sprint("t", i); s.store.Partition(tenant, 0) == stuck {
				w.commit("demo", tenant, 1) // nobody names it: a scan has to come by
				behind++
			}
		}
		quick.stop()
		var waiting atomic.Int64
		away := func(c faultkv.Call) bool {
			mine := c.Op == faultkv.Scan && store.Class(c.Keys[0]) == "row" && c.Keys[0][0] == stuck+1
			if mine {
				waiting.Add(1)
			}
			return mine
		}
		hang.Store(&away)
		n := s.start(testConfig())
		n.leads(t)
		r := newRunner(t)
		r.connect(n, 8, nil, nil)
		w.connect(n)
		synctest.Wait()
		require.EqualValues(t, core.PartitionReads, waiting.Load(), "of one partition no more are under way")
		other := s.elsewhere(stuck)
		began := time.Now()
		w.accept("demo", other, 1)
		r.settle(r.leased(1)[0], delivered)
		require.LessOrEqual(t, time.Since(began), settleWait+time.Millisecond, "nothing but a settle")
		began = time.Now()
		_, groups := w.commit("demo", other, 1)
		n.term.Load().post(func(c *core.Core, now hook.Timestamp) {
			c.Backlog(now, groups[0].Partition, groups[0].Key, groups[0].Start, 0, false)
		})
		r.settle(r.leased(1)[0], delivered)
		require.Less(t, time.Since(began), time.Second, "a scan waits for its turn behind those that are overdue")
		hang.Store(nil)
	})
}

func (s *street) lags(c crowd) (lags []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runner.mu.Lock()
	defer s.runner.mu.Unlock()
	for id, began := range s.runner.began[c.source] {
		lags = append(lags, began.Sub(s.accepted[id]))
	}
	slices.Sort(lags)
	return lags
}

// come commits a crowd's hooks and names them, as an ingest does.
func (s *street) come(ctx context.Context, c crowd) {
	w := s.writer()
	w.connect(s.node)
	go func() {
		for _, err := w.stream.Recv(); err == nil; _, err = w.stream.Recv() {
			continue // acknowledged
		}
	}()
	like := w.incoming(c.source, c.tenant, "")
	ticker := time.NewTicker(commitEvery)
	defer ticker.Stop()
	came, began := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			require.NoError(s.t, w.stream.CloseSend())
			return
		case <-ticker.C:
		}
		due := int(time.Since(began).Seconds() * float64(c.rate))
		if due > came {
			s.commit(w, like, due-came)
			came = due
		}
	}
}

func (s *street) commit(w *writer, like store.Incoming, n int) {
	batch := make([]store.Incoming, n)
	for i := range batch {
		id, err := uuid.NewV7()
		require.NoError(s.t, err)
		h := *like.Hook
		h.ID = hook.ID(id)
		batch[i] = like
		batch[i].Hook = &h
	}
	_, groups, err := w.w.Commit(context.Background(), s.store.Partition(like.Hook.Tenant, 0), batch)
	require.NoError(s.t, err)
	s.mu.Lock()
	for i := range batch {
		s.accepted[batch[i].Hook.ID] = time.Now()
	}
	s.mu.Unlock()
	w.sequence++
	named := wire.Committed{Sequence: w.sequence, Groups: groups}
	require.NoError(s.t, w.stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: named.Proto()}}))
}

// deliverer is a runner whose destinations take their time.
type deliverer struct {
	*runner
	crowds map[string]crowd
	over   chan struct{} // closed when the attempts are to be left
	work   sync.WaitGroup

	mu    sync.Mutex
	began map[string]map[hook.ID]time.Time // first attempts, by source
}

func newDeliverer(n *node, r *runner, crowds []crowd) *deliverer {
	d := &deliverer{
		runner: r, crowds: map[string]crowd{}, over: make(chan struct{}), began: map[string]map[hook.ID]time.Time{},
	}
	for _, c := range crowds {
		d.crowds[c.source] = c
		d.began[c.source] = map[hook.ID]time.Time{}
	}
	r.connect(n, 256, nil, nil)
	d.work.Go(d.serve)
	return d
}

// stop leaves the attempts that run.
func (s *street) stop() {
	close(s.runner.over)
	s.node.stop()
	s.runner.work.Wait()
}

// serve takes attempts until the stream ends.
func (d *deliverer) serve() {
	for {
		m, err := d.stream.Recv()
		if err != nil {
			return
		}
		attempts, err := wire.ReadAttempts(m.GetAttempts())
		require.NoError(d.t, err)
		for _, a := range attempts {
			d.work.Go(func() { d.attempt(a) })
		}
	}
}

func (d *deliverer) attempt(a wire.Attempt) {
	c := d.crowds[a.Row.Key.SourceID]
	d.mu.Lock()
	if began := d.began[c.source]; began[a.Row.Hook].IsZero() {
		began[a.Row.Hook] = time.Now()
	}
	d.mu.Unlock()
	select {
	case <-time.After(c.takes):
	case <-d.over:
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock() // one sends at a time
	d.report(a, hook.Outcome{Class: c.outcome, Duration: c.takes})
}

// isolationTime is as long as 2,000 hooks of a rate take in a long run; a tenth of that is enough to see what waits.
func isolationTime(rate int) time.Duration {
	hooks := 200
	if os.Getenv("ANKUSA_LONG") != "" {
		hooks = 2000
	}
	return time.Duration(max(hooks/rate, 5)) * time.Second
}

func p99(lags []time.Duration) time.Duration { return lags[len(lags)*99/100] }

// lagsOf runs crowds in a bubble of their own.
func lagsOf(t *testing.T, cfg Config, d time.Duration, crowds ...crowd) (lags []time.Duration, held int) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreet(t, cfg, crowds)
		lags, held = s.run(crowds, d)
		require.GreaterOrEqual(t, len(lags), int(d.Seconds()*float64(crowds[0].rate))-crowds[0].rate, "all of them were attempted")
		s.stop()
	})
	return lags, held
}

// The light tenant at 20 hooks a second, beside one at 1,980 whose destination takes 50 ms for each.
func TestI8_L15_ALightTenantBesideAHeavyOne(t *testing.T) {
	const window, floor = 1024, 2 * time.Millisecond
	light := crowd{tenant: "light", source: "l", rate: 20, takes: 5 * time.Millisecond, outcome: hook.Delivered}
	heavy := crowd{tenant: "heavy", source: "h", rate: 1980, takes: 50 * time.Millisecond, outcome: hook.Delivered}
	for name, change := range map[string]func(*core.Config){
		"default":                           func(*core.Config) {},
		"no cap, fewer slots than it needs": func(c *core.Config) { c.SinkConcurrency, c.Concurrency = 0, 64 },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Core.Default.MaxInflight = window
			change(&cfg.Core)
			alone, _ := lagsOf(t, cfg, isolationTime(20), light)
			beside, held := lagsOf(t, cfg, isolationTime(20), light, heavy)
			t.Logf("p99 %s, alone %s; the heavy one held %d rows", p99(beside), p99(alone), held)
			require.LessOrEqual(t, p99(beside), 2*max(p99(alone), floor))
			require.LessOrEqual(t, held, window)
			require.Positive(t, held)
		})
	}
}

// A destination that hangs until the attempt is cut off costs its neighbours nothing.
func TestL13_L14_L15_AVictimBesideAHangingDestination(t *testing.T) {
	const floor = time.Millisecond
	victim := crowd{tenant: "victim", source: "v", rate: 100, takes: 5 * time.Millisecond, outcome: hook.Delivered}
	for name, c := range map[string]struct {
		hanging crowd
		change  func(*core.Config)
	}{
		"L13 of another tenant": {crowd{tenant: "other", source: "o", rate: 100, takes: 5 * time.Second}, func(*core.Config) {}},
		"L13 without breakers": {
			crowd{tenant: "other", source: "o", rate: 100, takes: 5 * time.Second},
			func(c *core.Config) { c.Breakers.Failures = 0 },
		},
		"L14 of the same tenant": {crowd{tenant: "victim", source: "o", rate: 100, takes: 5 * time.Second}, func(*core.Config) {}},
		"L15 of a hot tenant": {
			crowd{tenant: "other", source: "o", rate: 1000, takes: 30 * time.Second},
			func(c *core.Config) { c.Breakers.Failures, c.SinkConcurrency = 0, 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.hanging.outcome = hook.TimedOut
			cfg := testConfig()
			cfg.Core.Breakers = core.Breakers{Failures: 5, Open: 30 * time.Second, MaxOpen: 5 * time.Minute}
			c.change(&cfg.Core)
			alone, _ := lagsOf(t, cfg, isolationTime(100), victim)
			beside, held := lagsOf(t, cfg, isolationTime(100), victim, c.hanging)
			t.Logf("p99 %s, alone %s; %d rows held", p99(beside), p99(alone), held)
			require.LessOrEqual(t, float64(p99(beside)), 1.1*float64(max(p99(alone), floor)))
			require.Positive(t, held)
		})
	}
}

// Where tenants have no windows of their own the same measurement finds the light one waiting for the heavy one's rows.
func TestTheMeasurementSeesATenantThatTakesAll(t *testing.T) {
	light := crowd{tenant: "light", source: "l", rate: 20, takes: 5 * time.Millisecond, outcome: hook.Delivered}
	heavy := crowd{tenant: "heavy", source: "h", rate: 1980, takes: 50 * time.Millisecond, outcome: hook.Delivered}
	cfg := testConfig()
	cfg.Core.MaxInflight, cfg.Core.Default.MaxInflight = 1024, 1024
	beside, _ := lagsOf(t, cfg, 5*time.Second, light, heavy)
	require.Greater(t, p99(beside), 20*time.Millisecond)
}
