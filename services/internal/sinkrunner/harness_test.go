package sinkrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLeader hands each stream to the test.
type fakeLeader struct {
	dispatchv1.UnimplementedDispatchServiceServer
	streams chan *fakeStream

	mu      sync.Mutex
	refuse  error
	refused int
}

type fakeStream struct {
	t      testing.TB
	stream grpc.BidiStreamingServer[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse]
	hello  wire.Hello
	got    chan *dispatchv1.LeaseRequest
	end    chan error
}

func (l *fakeLeader) Lease(s grpc.BidiStreamingServer[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse]) error {
	l.mu.Lock()
	refuse := l.refuse
	if refuse != nil {
		l.refused++
	}
	l.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	first, err := s.Recv()
	if err != nil {
		return err
	}
	hello, err := wire.ReadHello(first.GetHello())
	if err != nil {
		return err
	}
	f := &fakeStream{stream: s, hello: hello, got: make(chan *dispatchv1.LeaseRequest, 10_000), end: make(chan error, 1)}
	l.streams <- f
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				f.finish(err)
				return
			}
			f.got <- m
		}
	}()
	return <-f.end
}

func (f *fakeStream) finish(err error) {
	select {
	case f.end <- err:
	default:
	}
}

func (f *fakeStream) send(m *dispatchv1.LeaseResponse) { require.NoError(f.t, f.stream.Send(m)) }

func (f *fakeStream) welcome(epoch uint64) {
	m := &dispatchv1.LeaseResponse_Welcome{Welcome: &dispatchv1.Welcome{Epoch: epoch}}
	f.send(&dispatchv1.LeaseResponse{Message: m})
}

func (f *fakeStream) lease(attempts ...wire.Attempt) {
	f.send(&dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Attempts{Attempts: wire.AttemptsProto(attempts)}})
}

func (f *fakeStream) settle(leases ...hook.Lease) {
	settled := &dispatchv1.Settled{Leases: wire.LeasesProto(leases)}
	f.send(&dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Settled{Settled: settled}})
}

func (f *fakeStream) drop(leases ...hook.Lease) {
	drop := &dispatchv1.Drop{Leases: wire.LeasesProto(leases)}
	f.send(&dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Drop{Drop: drop}})
}

// reports waits for n outcomes.
func (f *fakeStream) reports(n int) (all []hook.Report) {
	f.t.Helper()
	for len(all) < n {
		m := f.next()
		require.NotNil(f.t, m.GetOutcomes(), "got %v", m)
		list, err := wire.ReadReports(m.GetOutcomes().GetOutcomes())
		require.NoError(f.t, err)
		all = append(all, list...)
	}
	require.Len(f.t, all, n)
	return all
}

func (f *fakeStream) next() *dispatchv1.LeaseRequest {
	f.t.Helper()
	select {
	case m := <-f.got:
		return m
	case <-time.After(time.Hour):
		require.FailNow(f.t, "the runner says nothing")
		return nil
	}
}

// quiet asserts that the runner has said nothing that was not looked at.
func (f *fakeStream) quiet() {
	f.t.Helper()
	synctest.Wait()
	require.Empty(f.t, f.got)
}

// fakeStore has every row that is asked for, unless it is told otherwise.
type fakeStore struct {
	mu    sync.Mutex
	epoch uint64
	calls [][]hook.Row
	fault func(rows []hook.Row) error
	spoil func(r hook.Row, f *store.Fetched)
}

func (s *fakeStore) Fetch(_ context.Context, rows []hook.Row) ([]store.Fetched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, rows)
	if s.fault != nil {
		if err := s.fault(rows); err != nil {
			return nil, err
		}
	}
	out := make([]store.Fetched, len(rows))
	for i, r := range rows {
		out[i] = store.Fetched{
			Epoch: s.epoch, Delivery: &hook.Delivery{Row: r},
			Hook: &hook.Hook{ID: r.Hook, Tenant: r.Key.Tenant, SourceID: r.Key.SourceID, Body: []byte("SECRET-PAYLOAD")},
		}
		if s.spoil != nil {
			s.spoil(r, &out[i])
		}
	}
	return out, nil
}

// fakeSources answers with what the test says.
type fakeSources struct {
	mu    sync.Mutex
	asked []hook.Timestamp
	read  func(owner, name string, revision hook.Timestamp) (*source.Source, error)
}

func (s *fakeSources) AtLeast(_ context.Context, owner, name string, revision hook.Timestamp) (*source.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, revision)
	return s.read(owner, name, revision)
}

// fakeSink delivers by a function.
type fakeSink struct {
	mu        sync.Mutex
	delivered []*sink.Delivery
	deliver   func(ctx context.Context, d *sink.Delivery) hook.Outcome
	closed    bool
}

func (s *fakeSink) Deliver(ctx context.Context, d *sink.Delivery) hook.Outcome {
	s.mu.Lock()
	s.delivered = append(s.delivered, d)
	deliver := s.deliver
	s.mu.Unlock()
	if deliver == nil {
		return hook.Outcome{Class: hook.Delivered, Status: 204}
	}
	return deliver(ctx, d)
}

func (s *fakeSink) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *fakeSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.delivered)
}

// hang waits for the end of the attempt and says what a sink then says.
func hang(ctx context.Context, _ *sink.Delivery) hook.Outcome {
	<-ctx.Done()
	return hook.Outcome{Class: hook.Transient, Reason: "cancelled"}
}

type harness struct {
	t       testing.TB
	leader  *fakeLeader
	store   *fakeStore
	sources *fakeSources
	sink    *fakeSink
	logs    *observer.ObservedLogs
	runner  *Runner
	stop    context.CancelFunc
	ended   chan error
}

// inBubble runs a test with a running runner, and checks that it ends in order.
func inBubble(t *testing.T, change func(*Config), test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{
			t: t, leader: &fakeLeader{streams: make(chan *fakeStream, 100)},
			store: &fakeStore{epoch: 1}, sources: &fakeSources{}, sink: &fakeSink{}, ended: make(chan error, 1),
		}
		src := newSource("log")
		h.sources.read = func(string, string, hook.Timestamp) (*source.Source, error) { return src, nil }
		server, conn := h.connect()
		core, logs := observer.New(zap.DebugLevel)
		h.logs = logs
		config := Default()
		config.Silence = time.Minute // these leaders say nothing of themselves
		if change != nil {
			change(&config)
		}
		runner, err := New(config, Deps{
			Leader: conn, Store: h.store, Sources: h.sources, Sinks: sink.Set{"log": h.sink}, Log: zap.New(core),
			Metrics: prometheus.NewRegistry(),
		})
		require.NoError(t, err)
		h.runner = runner
		ctx, stop := context.WithCancel(t.Context())
		h.stop = stop
		go func() { h.ended <- runner.Run(ctx) }()
		defer func() {
			stop()
			h.leader.mu.Lock()
			h.leader.refuse = nil
			h.leader.mu.Unlock()
			err := <-h.ended
			closed := conn.Close()
			server.Stop()
			require.NoError(t, err)
			require.NoError(t, closed)
			require.True(t, h.sink.closed)
			for _, e := range logs.All() { // L48
				require.NotContains(t, e.Message+fmt.Sprint(e.ContextMap()), "SECRET-PAYLOAD")
			}
		}()
		test(h)
	})
}

func (h *harness) connect() (*grpc.Server, *grpc.ClientConn) {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	dispatchv1.RegisterDispatchServiceServer(server, h.leader)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///leader",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	require.NoError(h.t, err)
	return server, conn
}

// joined waits for a stream and welcomes it.
func (h *harness) joined(epoch uint64) *fakeStream {
	h.t.Helper()
	f := h.stream()
	f.welcome(epoch)
	synctest.Wait()
	return f
}

func (h *harness) stream() *fakeStream {
	h.t.Helper()
	select {
	case f := <-h.leader.streams:
		f.t = h.t
		return f
	case <-time.After(time.Hour):
		require.FailNow(h.t, "no stream")
		return nil
	}
}

var errGone = status.Error(codes.Unavailable, "leader gone")

// newSource is a source with sinks of the given types.
func newSource(types ...string) *source.Source {
	src := source.New("acme", "stripe")
	src.Incarnation, src.Revision = 5, 70
	for _, t := range types {
		src.Sinks = append(src.Sinks, source.Sink{Type: t})
	}
	return src
}

// attempt is the n-th lease of epoch 1.
func attempt(n uint64) wire.Attempt {
	return wire.Attempt{
		Lease: hook.Lease{Epoch: 1, ID: n},
		Row: hook.Row{
			Partition: 1, Hook: hook.ID{byte(n >> 8), byte(n)}, Due: 9, Version: 9,
			Key: hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Index: 0, Type: "log"},
		},
		Number: 1, Timeout: 30 * time.Second, Left: 35 * time.Second, SourceRevision: 70, Incarnation: 5, Size: 14,
	}
}
