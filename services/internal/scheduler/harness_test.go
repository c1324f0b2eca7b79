package scheduler

import (
	"context"
	"crypto/rand"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

func testConfig() Config {
	return Config{
		Core: core.Config{
			Batch: 128, MaxInflight: 4096, MaxInflightBytes: 128 << 20, SinkConcurrency: 8,
			AttemptTimeout: 30 * time.Second, LeaseMargin: 5 * time.Second, Grace: 15 * time.Second,
			Default: core.Limits{MaxInflight: 1024, MaxInflightBytes: 32 << 20},
		},
		Retry: hook.DefaultRetryPolicy(), Lease: 5 * time.Second, Renew: 1500 * time.Millisecond,
		History: true, Retention: 24 * time.Hour,
	}
}

// system is a store with schedulers on it, reachable over gRPC, in the bubble of the test.
type system struct {
	t     *testing.T
	kv    kv.Store
	store *store.Store
}

func newSystem(t *testing.T) *system {
	port, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, port.Close()) })
	st, err := store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	return &system{t: t, kv: port, store: st}
}

// node is one running scheduler.
type node struct {
	*Scheduler
	conn *grpc.ClientConn
	stop func()
}

func (s *system) start(cfg Config) *node {
	sch, err := New(cfg, Deps{Store: s.store, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	require.NoError(s.t, err)
	server := grpc.NewServer()
	sch.Register(server)
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sch.Run(ctx) }()
	stopped := false
	n := &node{Scheduler: sch, conn: conn, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(s.t, <-ended)
		require.NoError(s.t, conn.Close())
		server.Stop()
	}}
	s.t.Cleanup(n.stop)
	return n
}

// leads waits in a bubble until the scheduler leads.
func (n *node) leads(t *testing.T) {
	for range 1000 {
		if n.term.Load() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
	t.Fatal("never led")
}

// led is a system and its leader.
func led(t *testing.T, cfg Config) (*system, *node) {
	s := newSystem(t)
	n := s.start(cfg)
	n.leads(t)
	return s, n
}

// source creates a source of the default tenant with n log sinks.
func (s *system) source(n *node, name string, sinks int) *adminv1.Source {
	in := &adminv1.Source{Name: name, Verify: &adminv1.Verify{Type: "none"}}
	for range sinks {
		in.Sinks = append(in.Sinks, &adminv1.Sink{Type: "log"})
	}
	out, err := n.CreateSource(s.t.Context(), &adminv1.CreateSourceRequest{Tenant: hook.DefaultTenant, Source: in})
	require.NoError(s.t, err)
	return out.GetSource()
}

// orderedSource creates a source of the default tenant with one sink that is one lane.
func (s *system) orderedSource(n *node, name string) {
	_, err := n.CreateSource(s.t.Context(), &adminv1.CreateSourceRequest{Tenant: hook.DefaultTenant, Source: &adminv1.Source{
		Name: name, Verify: &adminv1.Verify{Type: "none"}, Sinks: []*adminv1.Sink{{Type: "log", Ordered: true}},
	}})
	require.NoError(s.t, err)
}

// writer commits hooks of a source and notifies a leader of them.
type writer struct {
	s        *system
	w        *store.Writer
	sequence uint64
	stream   dispatchv1.DispatchService_NotifyClient
}

func (s *system) writer() *writer {
	return &writer{s: s, w: s.store.NewWriter(random16())}
}

func random16() (id hook.RunID) {
	_, _ = rand.Read(id[:])
	return id
}

func (w *writer) incoming(name, tenant, dedupe string) store.Incoming {
	src, err := w.s.store.Source(w.s.t.Context(), hook.DefaultTenant, name)
	require.NoError(w.s.t, err)
	id, err := uuid.NewV7()
	require.NoError(w.s.t, err)
	h := &hook.Hook{
		ID: hook.ID(id), Tenant: tenant, SourceID: src.ID(), Incarnation: src.Incarnation, Body: []byte("body of " + name),
		DedupeKey: dedupe, ReceivedAt: time.Now().UnixMilli(), Headers: []hook.Header{{Name: "Content-Type", Value: "text/plain"}},
	}
	in := store.Incoming{Hook: h, Owner: src.Tenant, Name: src.Name, DedupeTTL: time.Hour}
	for _, b := range src.Bindings(tenant, h) {
		in.Bindings = append(in.Bindings, store.Binding{Key: b.Key, Ordered: b.Ordered, Lane: b.Lane})
	}
	return in
}

// commit stores n hooks and returns what is to be notified.
func (w *writer) commit(name, tenant string, n int) (ids []hook.ID, groups []hook.Group) {
	batch := make([]store.Incoming, n)
	for i := range batch {
		batch[i] = w.incoming(name, tenant, "")
		ids = append(ids, batch[i].Hook.ID)
	}
	accepted, groups, err := w.w.Commit(w.s.t.Context(), w.s.store.Partition(tenant, 0), batch)
	require.NoError(w.s.t, err)
	for _, a := range accepted {
		require.NoError(w.s.t, a.Err)
	}
	return ids, groups
}

// accept commits n hooks and tells the leader.
func (w *writer) accept(name, tenant string, n int) []hook.ID {
	ids, groups := w.commit(name, tenant, n)
	w.notify(groups)
	return ids
}

func (w *writer) connect(n *node) {
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Notify(w.s.t.Context())
	require.NoError(w.s.t, err)
	hello := &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: wire.WriterHelloProto([]hook.RunID{w.w.ID()})}}
	require.NoError(w.s.t, stream.Send(hello))
	w.stream = stream
}

// notify names groups and waits for the acknowledgement.
func (w *writer) notify(groups []hook.Group) {
	w.sequence++
	c := wire.Committed{Sequence: w.sequence, Groups: groups}
	require.NoError(w.s.t, w.stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c.Proto()}}))
	for {
		ack, err := w.stream.Recv()
		require.NoError(w.s.t, err)
		if ack.GetAcknowledged() >= w.sequence {
			return
		}
	}
}

// runner speaks the lease stream by hand.
type runner struct {
	t        *testing.T
	id       hook.RunID
	stream   dispatchv1.DispatchService_LeaseClient
	epoch    uint64
	attempts []wire.Attempt
	settled  map[hook.Lease]bool
	dropped  map[hook.Lease]bool
}

func newRunner(t *testing.T) *runner { return &runner{t: t, id: random16()} }

func (r *runner) connect(n *node, slots int, running []hook.Running, reports []hook.Report) {
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Lease(r.t.Context())
	require.NoError(r.t, err)
	hello := wire.Hello{
		Runner: r.id, Name: "runner", SinkTypes: []string{"log", "http"}, Credit: hook.Credit{Slots: slots},
		Running: running, Unacknowledged: reports, HighestEpoch: r.epoch,
	}
	require.NoError(r.t, stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: hello.Proto()}}))
	r.stream, r.settled, r.dropped = stream, map[hook.Lease]bool{}, map[hook.Lease]bool{}
	m, err := stream.Recv()
	require.NoError(r.t, err)
	require.NotNil(r.t, m.GetWelcome())
	r.epoch = m.GetWelcome().GetEpoch()
}

// hear takes one message.
func (r *runner) hear() {
	m, err := r.stream.Recv()
	require.NoError(r.t, err)
	attempts, err := wire.ReadAttempts(m.GetAttempts())
	require.NoError(r.t, err)
	r.attempts = append(r.attempts, attempts...)
	for _, l := range wire.ReadLeases(m.GetSettled().GetLeases()) {
		r.settled[l] = true
	}
	for _, l := range wire.ReadLeases(m.GetDrop().GetLeases()) {
		r.dropped[l] = true
	}
}

// leased waits for n attempts and takes them.
func (r *runner) leased(n int) []wire.Attempt {
	for len(r.attempts) < n {
		r.hear()
	}
	out := r.attempts[:n]
	r.attempts = append([]wire.Attempt(nil), r.attempts[n:]...)
	return out
}

func (r *runner) report(a wire.Attempt, o hook.Outcome) {
	list := wire.ReportsProto([]hook.Report{{Lease: a.Lease, Row: a.Row, Attempt: a.Number, Outcome: o}})
	m := &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Outcomes{Outcomes: &dispatchv1.Outcomes{Outcomes: list}}}
	require.NoError(r.t, r.stream.Send(m))
}

// settle reports an outcome and waits until it stands.
func (r *runner) settle(a wire.Attempt, o hook.Outcome) {
	r.report(a, o)
	for !r.settled[a.Lease] {
		r.hear()
	}
}

// outstanding counts what the counters say is not settled.
func (s *system) outstanding() (n int64) {
	for p := range s.store.Partitions() {
		require.NoError(s.t, s.store.Outstanding(s.t.Context(), uint8(p), func(w store.Work) { n += w.Rows }))
	}
	return n
}

// elsewhere is a tenant whose rows lie in another partition.
func (s *system) elsewhere(partition uint8) string {
	tenant := "t"
	for s.store.Partition(tenant, 0) == partition {
		tenant += "x"
	}
	return tenant
}

// faultySystem is a system on whose store faults strike.
func faultySystem(t *testing.T, plan func(faultkv.Call) faultkv.Fault) *system {
	s := newSystem(t)
	s.kv = faultkv.New(s.kv, plan)
	var err error
	s.store, err = store.Open(t.Context(), s.kv, store.Options{})
	require.NoError(t, err)
	return s
}

// slowSystem is a system in whose store every commit takes a while.
func slowSystem(t *testing.T, commit time.Duration) *system {
	return faultySystem(t, func(c faultkv.Call) faultkv.Fault {
		if c.Op == faultkv.Update {
			return faultkv.Fault{Latency: commit}
		}
		return faultkv.Fault{}
	})
}
