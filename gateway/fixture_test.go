package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"ankusa.dev/gateway"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scheduler is a fake peer. Each call that a test expects has its function; any other fails as unimplemented.
type scheduler struct {
	adminv1.UnimplementedSourceServiceServer
	adminv1.UnimplementedDeadLetterServiceServer
	adminv1.UnimplementedProcessServiceServer
	eventv1.UnimplementedEventServiceServer

	create func(*adminv1.CreateSourceRequest) (*adminv1.CreateSourceResponse, error)
	get    func(context.Context, *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error)
	update func(*adminv1.UpdateSourceRequest) (*adminv1.UpdateSourceResponse, error)
	remove func(context.Context, *adminv1.DeleteSourceRequest) (*adminv1.DeleteSourceResponse, error)
	list   func(*adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error)
	dead   func(*adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error)
	watch  func(*eventv1.WatchRequest, grpc.ServerStreamingServer[eventv1.WatchResponse]) error

	ready func() (*adminv1.ReadyResponse, error)

	health *health.Server
	others map[string]grpc.ClientConnInterface
}

func (s *scheduler) CreateSource(ctx context.Context, r *adminv1.CreateSourceRequest) (*adminv1.CreateSourceResponse, error) {
	if s.create == nil {
		return s.UnimplementedSourceServiceServer.CreateSource(ctx, r)
	}
	return s.create(r)
}

func (s *scheduler) GetSource(ctx context.Context, r *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
	if s.get == nil {
		return s.UnimplementedSourceServiceServer.GetSource(ctx, r)
	}
	return s.get(ctx, r)
}

func (s *scheduler) UpdateSource(ctx context.Context, r *adminv1.UpdateSourceRequest) (*adminv1.UpdateSourceResponse, error) {
	if s.update == nil {
		return s.UnimplementedSourceServiceServer.UpdateSource(ctx, r)
	}
	return s.update(r)
}

func (s *scheduler) DeleteSource(ctx context.Context, r *adminv1.DeleteSourceRequest) (*adminv1.DeleteSourceResponse, error) {
	if s.remove == nil {
		return s.UnimplementedSourceServiceServer.DeleteSource(ctx, r)
	}
	return s.remove(ctx, r)
}

func (s *scheduler) ListSources(ctx context.Context, r *adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error) {
	if s.list == nil {
		return s.UnimplementedSourceServiceServer.ListSources(ctx, r)
	}
	return s.list(r)
}

func (s *scheduler) ListDeadLetters(ctx context.Context, r *adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error) {
	if s.dead == nil {
		return s.UnimplementedDeadLetterServiceServer.ListDeadLetters(ctx, r)
	}
	return s.dead(r)
}

func (s *scheduler) Ready(ctx context.Context, r *adminv1.ReadyRequest) (*adminv1.ReadyResponse, error) {
	if s.ready == nil {
		return s.UnimplementedProcessServiceServer.Ready(ctx, r)
	}
	return s.ready()
}

func (s *scheduler) Watch(r *eventv1.WatchRequest, stream grpc.ServerStreamingServer[eventv1.WatchResponse]) error {
	if s.watch == nil {
		return s.UnimplementedEventServiceServer.Watch(r, stream)
	}
	return s.watch(r, stream)
}

// api is a gateway that serves on loopback, before a fake scheduler.
type api struct {
	t         *testing.T
	url       string
	client    *http.Client
	logs      *observer.ObservedLogs
	scheduler *grpc.Server
}

func serve(t *testing.T, s *scheduler, mend ...func(*gateway.Config)) *api {
	t.Helper()
	server := grpc.NewServer()
	adminv1.RegisterSourceServiceServer(server, s)
	adminv1.RegisterDeadLetterServiceServer(server, s)
	adminv1.RegisterProcessServiceServer(server, s)
	eventv1.RegisterEventServiceServer(server, s)
	s.health = health.NewServer()
	s.health.SetServingStatus(adminv1.SourceService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, s.health)
	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipe) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // a test may stop it before it serves
			require.NoError(t, err)
		}
	})

	conn, err := grpc.NewClient("passthrough:///scheduler",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })

	cfg := gateway.Default()
	cfg.Instance, cfg.Version, cfg.Roles = "test", "1.2.3", []string{"scheduler", "gateway"}
	for _, f := range mend {
		f(&cfg)
	}
	core, logs := observer.New(zap.InfoLevel)
	registry := prometheus.NewRegistry()
	handler, err := gateway.New(cfg, gateway.Deps{
		Admin: conn, Leader: marked{conn}, Others: s.others,
		MetricsHandler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Metrics: registry, Log: zap.New(core),
	})
	require.NoError(t, err)
	web := httptest.NewServer(gateway.OnlyHosts(handler, "admin.example"))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	return &api{t: t, url: web.URL, client: web.Client(), logs: logs, scheduler: server}
}

// marked is the connection to the leader: it says so to the fake scheduler, which is all of them.
type marked struct{ grpc.ClientConnInterface }

func (m marked) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return m.ClientConnInterface.Invoke(metadata.AppendToOutgoingContext(ctx, "leader", "yes"), method, args, reply, opts...)
}

func leads(ctx context.Context) bool {
	return len(metadata.ValueFromIncomingContext(ctx, "leader")) > 0
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (a *api) do(method, path, body string, header ...string) reply {
	a.t.Helper()
	res := a.open(a.t.Context(), method, path, body, header...)
	defer func() { require.NoError(a.t, res.Body.Close()) }()
	data, err := io.ReadAll(res.Body)
	require.NoError(a.t, err)
	return reply{res.StatusCode, res.Header, strings.TrimSuffix(string(data), "\n")}
}

func (a *api) open(ctx context.Context, method, path, body string, header ...string) *http.Response {
	a.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := a.client.Do(req)
	require.NoError(a.t, err)
	return res
}

// explained is an error as a scheduler sends it to be shown.
func explained(t *testing.T, code codes.Code, reason string, fields map[string]string) error {
	t.Helper()
	s, err := status.New(code, "secret internals").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "ankusa.dev", Metadata: fields})
	require.NoError(t, err)
	return s.Err()
}
