package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"ankusa.dev/gateway"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
)

func TestAnErrorShowsItsReasonAndFieldsAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		body   string
	}{
		"explained":         {explained(t, codes.NotFound, "source_not_found", nil), 404, `{"error":"source_not_found"}`},
		"with numbers":      {explained(t, codes.FailedPrecondition, "source_has_deliveries", map[string]string{"pending": "12", "inflight": "3"}), 409, `{"error":"source_has_deliveries","inflight":3,"pending":12}`},
		"with text":         {explained(t, codes.InvalidArgument, "invalid_source", map[string]string{"message": "5"}), 400, `{"error":"invalid_source","message":"5"}`},
		"taken name":        {explained(t, codes.AlreadyExists, "source_exists", nil), 409, `{"error":"source_exists"}`},
		"store":             {explained(t, codes.Unavailable, "store_unavailable", nil), 503, `{"error":"store_unavailable"}`},
		"error is no field": {explained(t, codes.InvalidArgument, "invalid_tenant", map[string]string{"error": "x"}), 400, `{"error":"invalid_tenant"}`},
		"no reason":         {status.Error(codes.NotFound, "key 0x12"), 404, `{"error":"not_found"}`},
		"internal":          {status.Error(codes.Internal, "key 0x12"), 500, `{"error":"internal"}`},
		"unknown":           {status.Error(codes.Unknown, "key 0x12"), 500, `{"error":"internal"}`},
		"no leader":         {status.Error(codes.Unavailable, "10.0.0.1 refused"), 503, `{"error":"dispatch_unavailable"}`},
		"limit":             {status.Error(codes.ResourceExhausted, "x"), 429, `{"error":"rate_limited"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, &scheduler{get: func(context.Context, *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
				return nil, c.err
			}})
			res := a.do(http.MethodGet, "/v1/tenants/acme/sources/s", "")
			require.Equal(t, c.status, res.status)
			require.Equal(t, c.body, res.body)
			require.Equal(t, "application/json", res.header.Get("Content-Type"))
			if c.status == http.StatusServiceUnavailable {
				require.Equal(t, "1", res.header.Get("Retry-After"))
			}
		})
	}
}

func TestAnInternalErrorIsLoggedForTheOperator(t *testing.T) {
	a := serve(t, &scheduler{get: func(context.Context, *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
		return nil, status.Error(codes.Internal, "the cause")
	}})
	a.do(http.MethodGet, "/v1/tenants/acme/sources/s", "")
	require.Len(t, a.logs.All(), 1)
	require.Equal(t, "the cause", a.logs.All()[0].ContextMap()["message"])
	require.Equal(t, adminv1.SourceService_GetSource_FullMethodName, a.logs.All()[0].ContextMap()["method"])
}

func TestASchedulerThatHangsIsAnsweredForAfterTheCallTimeout(t *testing.T) {
	a := serve(t, &scheduler{get: func(ctx context.Context, _ *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}, func(c *gateway.Config) { c.CallTimeout = 50 * time.Millisecond })
	res := a.do(http.MethodGet, "/v1/tenants/acme/sources/s", "")
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.Equal(t, `{"error":"dispatch_unavailable"}`, res.body)
}

func TestDeadLettersKeepEveryFieldAndShowAbsentOnesAsNull(t *testing.T) {
	var got *adminv1.ListDeadLettersRequest
	answer := &adminv1.ListDeadLettersResponse{}
	a := serve(t, &scheduler{dead: func(r *adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error) {
		got = r
		return answer, nil
	}})
	require.Equal(t, `{"total":null,"entries":[],"next_cursor":null}`, a.do(http.MethodGet, "/v1/dlq", "").body)
	require.True(t, proto.Equal(&adminv1.ListDeadLettersRequest{}, got), "absent parameters stay absent")

	answer.Total, answer.NextCursor = proto.Int64(1<<53-1), proto.String("c2")
	answer.Entries = []*adminv1.DeadLetter{{Id: "i", SourceId: "acme.s", Seq: 1<<53 - 1, Reason: "http: status 503"}}
	res := a.do(http.MethodGet, "/v1/dlq?tenant=acme&source_id=acme.s&sink=0&error_class=permanent&since=1700000000000&limit=0&cursor=c", "")
	require.Equal(t, `{"total":9007199254740991,"entries":[{"id":"i","source_id":"acme.s","tenant_id":"","seq":9007199254740991,`+
		`"received_at":0,"dead_lettered_at":0,"size":0,"content_type":"","reason":"http: status 503","sink":0,"sink_type":"",`+
		`"error_class":"","attempts":0}],"next_cursor":"c2"}`, res.body)
	require.True(t, proto.Equal(&adminv1.ListDeadLettersRequest{
		Tenant: "acme", SourceId: "acme.s", Sink: proto.Uint32(0), ErrorClass: "permanent",
		Since: proto.Int64(1700000000000), Limit: proto.Int32(0), Cursor: "c",
	}, got))
}

func TestParametersThatTheRouteDoesNotTakeAreNamed(t *testing.T) {
	a := serve(t, &scheduler{})
	for path, field := range map[string]string{
		"/v1/dlq?tennant=a":                            "tennant",
		"/v1/dlq?limit=ten":                            "limit",
		"/v1/dlq?limit=":                               "limit",
		"/v1/dlq?limit=1&limit=2":                      "limit",
		"/v1/dlq?sink=-1":                              "sink",
		"/v1/dlq?since=99999999999999999999":           "since",
		"/v1/dlq?tenant=%ff":                           "tenant",
		"/v1/dlq?a;b":                                  "query",
		"/v1/tenants/acme/sources?tenant=x":            "tenant",
		"/v1/tenants/acme/sources/s?name=x":            "name",
		"/v1/events?outcome=dead&outcome=failed&seq=1": "seq",
	} {
		res := a.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusBadRequest, res.status, path)
		require.JSONEq(t, `{"error":"invalid_filter","field":"`+field+`"}`, res.body, path)
	}
	res := a.do(http.MethodPost, "/v1/tenants/acme/sources?source=x", `{}`)
	require.JSONEq(t, `{"error":"invalid_filter","field":"source"}`, res.body)
}

func TestWhatIsNotThereIsNotFoundAndWhatIsNotAllowedSaysWhatIs(t *testing.T) {
	a := serve(t, &scheduler{})
	for _, path := range []string{"/", "/v1", "/v1/dlq/", "/v1/tenants/acme", "/v1/tenants/a%2Fb/sources", "/v1/tenants/%ff/sources",
		"//health", "/v1/../health", "/v1/./dlq", "/v1/tenants//sources"} {
		res := a.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, res.status, path)
		require.Equal(t, `{"error":"not_found"}`, res.body, path)
	}
	res := a.do(http.MethodDelete, "/v1/tenants/acme/sources", "")
	require.Equal(t, http.StatusMethodNotAllowed, res.status)
	require.Equal(t, `{"error":"method_not_allowed"}`, res.body)
	require.Equal(t, "POST, GET", res.header.Get("Allow"))
	require.Equal(t, http.StatusMethodNotAllowed, a.do(http.MethodHead, "/v1/events", "").status)
	require.Equal(t, http.StatusMethodNotAllowed, a.do(http.MethodPost, "/health", "").status)
}

func TestAPageOfAnotherSiteIsRefused(t *testing.T) {
	a := serve(t, &scheduler{})
	res := a.do(http.MethodPost, "/v1/tenants/acme/sources", `{}`, "Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain")
	require.Equal(t, http.StatusForbidden, res.status)
	require.JSONEq(t, `{"error":"forbidden","message":"a page of another site asked"}`, res.body)
}

func TestHealthAnswersAsLongAsTheProcessRuns(t *testing.T) {
	a := serve(t, &scheduler{})
	a.scheduler.Stop()
	res := a.do(http.MethodGet, "/health", "")
	require.Equal(t, http.StatusOK, res.status)
	require.JSONEq(t, `{"status":"ok","instance":"test","version":"1.2.3","roles":["gateway","scheduler"]}`, res.body)
}

func TestReadyFollowsTheHealthOfThePeers(t *testing.T) {
	s := &scheduler{}
	a := serve(t, s)
	res := a.do(http.MethodGet, "/ready", "")
	require.Equal(t, http.StatusOK, res.status)
	require.JSONEq(t, `{"status":"ok","instance":"test"}`, res.body)

	s.health.SetServingStatus(adminv1.SourceService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_NOT_SERVING)
	res = a.do(http.MethodGet, "/ready", "")
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.Equal(t, "1", res.header.Get("Retry-After"))
	require.JSONEq(t, `{"status":"unavailable","instance":"test","error":"not_ready","scheduler":"dispatch_unavailable"}`, res.body)

	a.scheduler.Stop()
	require.Equal(t, http.StatusServiceUnavailable, a.do(http.MethodGet, "/ready", "").status)
}

func TestReadyNamesWhatTheSchedulersProcessMisses(t *testing.T) {
	s := &scheduler{ready: func() (*adminv1.ReadyResponse, error) {
		return &adminv1.ReadyResponse{Missing: map[string]string{"store": "write_failed"}}, nil
	}}
	a := serve(t, s)
	res := a.do(http.MethodGet, "/ready", "")
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.JSONEq(t, `{"status":"unavailable","instance":"test","error":"not_ready","store":"write_failed"}`, res.body)
	s.ready = func() (*adminv1.ReadyResponse, error) { return &adminv1.ReadyResponse{}, nil }
	require.JSONEq(t, `{"status":"ok","instance":"test"}`, a.do(http.MethodGet, "/ready", "").body)
}

// A page that gives its own name the address of this machine is of one site with the API.
func TestAHostThatIsNotThisMachineIsRefused(t *testing.T) {
	a := serve(t, &scheduler{})
	ask := func(host string) reply {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/health", nil)
		require.NoError(t, err)
		req.Host = host
		res, err := a.client.Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, res.Body.Close()) }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return reply{res.StatusCode, res.Header, strings.TrimSpace(string(body))}
	}
	for _, host := range []string{
		"localhost", "localhost:4002", "LocalHost.", "127.0.0.1:4002", "127.8.8.8", "[::1]:4002", "[::1]", "::1",
		"[::ffff:127.0.0.1]:1", "admin.example", "Admin.Example:4002",
	} {
		require.Equal(t, http.StatusOK, ask(host).status, host)
	}
	for _, host := range []string{
		"evil.example", "evil.example:4002", "localhost.evil.example", "127.0.0.1.evil.example", "admin.example.evil.example",
		"10.0.0.1", "[2001:db8::1]:4002", "0.0.0.0",
	} {
		res := ask(host)
		require.Equal(t, http.StatusForbidden, res.status, host)
		require.JSONEq(t, `{"error":"forbidden","message":"the header Host names neither this machine nor one of admin.hosts"}`, res.body)
	}
}

func TestReadyNamesAnotherPeerThatIsDown(t *testing.T) {
	down, err := grpc.NewClient("passthrough:///ingest",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, down.Close()) }()
	a := serve(t, &scheduler{others: map[string]grpc.ClientConnInterface{"ingest": down}})
	res := a.do(http.MethodGet, "/ready", "")
	require.JSONEq(t, `{"status":"unavailable","instance":"test","error":"not_ready","ingest":"ingest_unavailable"}`, res.body)
}

func TestMetricsCountByRouteAndNeverByWhatAClientSends(t *testing.T) {
	a := serve(t, &scheduler{get: func(_ context.Context, r *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
		return nil, explained(t, codes.NotFound, "source_not_found", nil)
	}})
	for _, name := range []string{"a", "b"} {
		a.do(http.MethodGet, "/v1/tenants/acme/sources/"+name, "")
	}
	a.do(http.MethodGet, "/v1/nothing", "")
	metrics := a.do(http.MethodGet, "/metrics", "").body
	require.Contains(t, metrics, `ankusa_gateway_requests_total{method="GET",route="/v1/tenants/{tenant}/sources/{name}",status="404"} 2`)
	require.NotContains(t, metrics, "nothing")
}

func TestValidateReturnsEveryFaultAtOnce(t *testing.T) {
	require.NoError(t, gateway.Default().Validate())
	require.EqualError(t, gateway.Config{}.Validate(), "gateway.call_timeout_ms must be more than 0, got 0\n"+
		"gateway.max_body_bytes must be at least 1, got 0\n"+
		"gateway.max_streams must be at least 1, got 0\n"+
		"gateway.ready_timeout_ms must be more than 0, got 0\n"+
		"gateway.stream_write_timeout_ms must be more than 0, got 0")
	_, err := gateway.New(gateway.Config{}, gateway.Deps{})
	require.Error(t, err)
}
