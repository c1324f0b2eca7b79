package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"
	"ankusa.dev/services/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const service = "ankusa.ingest.v1.IngestService"

// peer is a server whose only call answers with its name, or does what do says.
type peer struct {
	ingestv1.UnimplementedIngestServiceServer
	name   string
	do     func(context.Context) error
	health *health.Server
	server *grpc.Server
}

func (p *peer) Accept(ctx context.Context, _ *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
	if p.do != nil {
		if err := p.do(ctx); err != nil {
			return nil, err
		}
	}
	return &ingestv1.AcceptResponse{Id: p.name}, nil
}

func newPeer(name string, log *zap.Logger, s rpc.Security) *peer {
	p := &peer{name: name, health: health.NewServer()}
	p.server = rpc.NewServer(rpc.ServerOptions{Log: log, Security: s, Health: p.health})
	ingestv1.RegisterIngestServiceServer(p.server, p)
	return p
}

func (p *peer) leads(yes bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthpb.HealthCheckResponse_SERVING
	}
	p.health.SetServingStatus(service, state)
}

// serve runs the peer on the listener until stop is called.
func (p *peer) serve(l net.Listener) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rpc.Serve("grpc", p.server, l, time.Second).Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return l
}

func call(ctx context.Context, conn grpc.ClientConnInterface) (string, error) {
	r, err := ingestv1.NewIngestServiceClient(conn).Accept(ctx, &ingestv1.AcceptRequest{}, grpc.WaitForReady(true))
	return r.GetId(), err
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCallsGoToThePeerThatServesAloneAndFollowIt(t *testing.T) {
	a, b := newPeer("a", zap.NewNop(), rpc.Security{}), newPeer("b", zap.NewNop(), rpc.Security{})
	la, lb := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	a.leads(true)
	b.leads(false)
	stopA, stopB := a.serve(la), b.serve(lb)
	conn, err := rpc.Dial([]string{la.Addr().String(), lb.Addr().String()}, service, rpc.Security{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()

	for range 10 {
		name, err := call(within(t, 5*time.Second), conn)
		require.NoError(t, err)
		require.Equal(t, "a", name)
	}
	a.leads(false)
	b.leads(true)
	require.Eventually(t, func() bool {
		name, err := call(within(t, 5*time.Second), conn)
		return err == nil && name == "b"
	}, 5*time.Second, 10*time.Millisecond)

	require.NoError(t, stopB())
	a.leads(true)
	name, err := call(within(t, 5*time.Second), conn)
	require.NoError(t, err)
	require.Equal(t, "a", name)
	require.NoError(t, stopA())
}

func TestL02_APeerThatComesBackIsRedialledWithinSeconds(t *testing.T) {
	a := newPeer("first", zap.NewNop(), rpc.Security{})
	l := listen(t, "127.0.0.1:0")
	a.leads(true)
	stop := a.serve(l)
	conn, err := rpc.Dial([]string{l.Addr().String()}, service, rpc.Security{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = call(within(t, 5*time.Second), conn)
	require.NoError(t, err)
	require.NoError(t, stop())
	_, err = call(within(t, 500*time.Millisecond), conn)
	require.Error(t, err)

	again := newPeer("second", zap.NewNop(), rpc.Security{})
	again.leads(true)
	stop = again.serve(listen(t, l.Addr().String()))
	name, err := call(within(t, 5*time.Second), conn)
	require.NoError(t, err)
	require.Equal(t, "second", name)
	require.NoError(t, stop())
}

func TestACallFailsAtOnceWhileNobodyServes(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	require.NoError(t, l.Close())
	conn, err := rpc.Dial([]string{l.Addr().String()}, service, rpc.Security{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = ingestv1.NewIngestServiceClient(conn).Accept(within(t, 20*time.Second), &ingestv1.AcceptRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	_, err = rpc.Dial(nil, service, rpc.Security{})
	require.ErrorIs(t, err, rpc.ErrNoAddress)
}

func TestAPanicCostsItsCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		p := newPeer("p", zap.New(core), rpc.Security{})
		p.do = func(context.Context) error { panic("secret detail") }
		conn, stop := piped(t, p)
		_, err := call(t.Context(), conn)
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "secret detail")
		require.Len(t, logged.FilterMessage("call panicked").All(), 1)
		p.do = nil
		name, err := call(t.Context(), conn)
		require.NoError(t, err)
		require.Equal(t, "p", name)
		stop()
	})
}

func TestACallerNeverSeesAnErrorThatIsNoStatus(t *testing.T) {
	for want, given := range map[codes.Code]error{
		codes.Internal:         errors.New("pq: password hunter2 is wrong"),
		codes.NotFound:         status.Error(codes.NotFound, "source_not_found"),
		codes.DeadlineExceeded: fmt.Errorf("commit: %w", context.DeadlineExceeded),
	} {
		synctest.Test(t, func(t *testing.T) {
			core, logged := observer.New(zap.DebugLevel)
			p := newPeer("p", zap.New(core), rpc.Security{})
			p.do = func(context.Context) error { return given }
			conn, stop := piped(t, p)
			_, err := call(t.Context(), conn)
			require.Equal(t, want, status.Code(err))
			require.NotContains(t, err.Error(), "hunter2")
			require.Len(t, logged.FilterMessage("call failed").All(), map[bool]int{true: 1}[want == codes.Internal])
			stop()
		})
	}
}

// piped serves the peer over a pipe.
func piped(t *testing.T, p *peer) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	pipe := rpc.NewPipe()
	p.leads(true)
	stopServer := p.serve(pipe)
	conn, err := pipe.Dial(service)
	require.NoError(t, err)
	return conn, func() {
		require.NoError(t, conn.Close())
		require.NoError(t, stopServer())
	}
}

func TestAStoppedServerCutsOffACallThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer("p", zap.NewNop(), rpc.Security{})
		begun := make(chan struct{})
		p.do = func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}
		pipe := rpc.NewPipe()
		p.leads(true)
		stop := p.serve(pipe)
		conn, err := pipe.Dial(service)
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() {
			_, err := call(t.Context(), conn)
			failed <- err
		}()
		<-begun
		began := time.Now()
		require.NoError(t, stop())
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, codes.Unavailable, status.Code(<-failed))
		require.NoError(t, conn.Close())
	})
}

var errBroken = errors.New("listener failed")

// broken is a listener that fails when it is told to, and leaves its connections open.
type broken struct {
	net.Listener
	fail chan struct{}
}

func (b broken) Accept() (net.Conn, error) {
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := b.Listener.Accept(); err == nil {
			accepted <- conn
		}
	}()
	select {
	case conn := <-accepted:
		return conn, nil
	case <-b.fail:
		return nil, errBroken
	}
}

// A process may be told to stop while its parts still start.
func TestAServerThatIsStoppedBeforeItServesHasNotFailed(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		pipe := rpc.NewPipe()
		p := newPeer("p", zap.NewNop(), rpc.Security{})
		require.NoError(t, rpc.Serve("grpc", p.server, pipe, time.Second).Run(stopped))
		_, err := pipe.Accept()
		require.Error(t, err, "the listener is closed")
	}
}

func TestAListenerThatFailsLeavesNoCallBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer("p", zap.NewNop(), rpc.Security{})
		begun, returned := make(chan struct{}), false
		p.do = func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			time.Sleep(time.Second)
			returned = true
			return ctx.Err()
		}
		p.leads(true)
		pipe, fail := rpc.NewPipe(), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- rpc.Serve("grpc", p.server, broken{pipe.Listener, fail}, time.Second).Run(context.Background())
		}()
		conn, err := pipe.Dial(service)
		require.NoError(t, err)
		called := make(chan error, 1)
		go func() {
			_, err := call(t.Context(), conn)
			called <- err
		}()
		<-begun
		close(fail)
		require.ErrorIs(t, <-ended, errBroken)
		require.True(t, returned)
		require.Error(t, <-called)
		require.NoError(t, conn.Close())
		require.NoError(t, pipe.Close())
	})
}

func TestAMessagePastTheBoundIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, stop := piped(t, newPeer("p", zap.NewNop(), rpc.Security{}))
		client := ingestv1.NewIngestServiceClient(conn)
		_, err := client.Accept(t.Context(), &ingestv1.AcceptRequest{Body: make([]byte, rpc.MaxMessage/2)})
		require.NoError(t, err)
		_, err = client.Accept(t.Context(), &ingestv1.AcceptRequest{Body: make([]byte, rpc.MaxMessage)})
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		stop()
	})
}
