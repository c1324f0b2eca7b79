// Package gateway translates the REST API onto gRPC. It holds no state and reaches no store: all that it knows it asks
// the schedulers for.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
)

// Config is what an operator chooses.
type Config struct {
	// Instance names this deployment in GET /health.
	Instance string
	// Version of the binary, in GET /health.
	Version string
	// Roles of the process, in GET /health, sorted there.
	Roles []string
	// MaxBodyBytes bounds a request's body. Default 65536; at least 1.
	MaxBodyBytes int64
	// CallTimeout bounds one call to a scheduler, and so a request, an open event stream apart. Default 30 s, since the
	// deletion of a source waits for commits that are under way; more than 0.
	CallTimeout time.Duration
	// ReadyTimeout bounds the checks behind GET /ready. Default 3 s, since a peer asks its store for up to 2 s; more
	// than 0.
	ReadyTimeout time.Duration
	// StreamWriteTimeout bounds the sending of one event to a client that reads too slowly; past it the stream is cut,
	// and the client resumes. Default 30 s; more than 0.
	StreamWriteTimeout time.Duration
	// MaxStreams bounds the event streams that are open at once; one more is answered 503 overload. Default 256; at
	// least 1.
	MaxStreams int
}

// Default returns the defaults, without the names of the deployment.
func Default() Config {
	return Config{
		MaxBodyBytes:       64 << 10,
		CallTimeout:        30 * time.Second,
		ReadyTimeout:       3 * time.Second,
		StreamWriteTimeout: 30 * time.Second,
		MaxStreams:         256,
	}
}

// Validate returns every fault at once, each beginning with its key.
func (c Config) Validate() error {
	var faults []error
	if c.MaxBodyBytes < 1 {
		faults = append(faults, fmt.Errorf("gateway.max_body_bytes must be at least 1, got %d", c.MaxBodyBytes))
	}
	if c.MaxStreams < 1 {
		faults = append(faults, fmt.Errorf("gateway.max_streams must be at least 1, got %d", c.MaxStreams))
	}
	for key, d := range map[string]time.Duration{
		"gateway.call_timeout_ms":         c.CallTimeout,
		"gateway.ready_timeout_ms":        c.ReadyTimeout,
		"gateway.stream_write_timeout_ms": c.StreamWriteTimeout,
	} {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("%s must be more than 0, got %d", key, d.Milliseconds()))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

// Deps is what the gateway works with. The connections stay the caller's, who closes them after the last request. Dial
// them with a MaxCallRecvMsgSize that holds all sources of a tenant, which are listed in one message.
type Deps struct {
	// Admin reaches any scheduler. It serves the sources, the dead letters and what is behind GET /ready.
	Admin grpc.ClientConnInterface
	// Leader reaches the leading scheduler alone. It serves the events, and deletions that take deliveries along.
	Leader grpc.ClientConnInterface
	// Others are asked for their overall health by GET /ready, under their names, and for nothing else. May be empty.
	Others map[string]grpc.ClientConnInterface
	// MetricsHandler answers GET /metrics.
	MetricsHandler http.Handler
	// Metrics takes the gateway's own metrics.
	Metrics prometheus.Registerer
	// Log takes what a client is not told.
	Log *zap.Logger
}

// New returns the handler of the whole API, GET /health, /ready and /metrics included.
//
// The handler bounds bodies, calls and streams. Whoever serves it bounds the rest: set ReadHeaderTimeout, ReadTimeout,
// IdleTimeout and MaxHeaderBytes on the http.Server. WriteTimeout may be set; an event stream lifts it. An event stream
// ends with its request's context: cancel the server's BaseContext before Shutdown, which waits for streams. There is
// no authentication: bind it to loopback, or put something in front.
func New(cfg Config, d Deps) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	translator, err := newTranslator(cfg, d)
	if err != nil {
		return nil, fmt.Errorf("gateway: register services: %w", err)
	}
	operations, err := operationsOf(
		adminv1.File_ankusa_admin_v1_source_proto.Services(),
		adminv1.File_ankusa_admin_v1_dead_letter_proto.Services(),
		adminv1.File_ankusa_admin_v1_hook_proto.Services(),
		eventv1.File_ankusa_event_v1_event_proto.Services(),
	)
	if err != nil {
		return nil, fmt.Errorf("gateway: read the routes of the protos: %w", err)
	}
	meters, err := newMeters(d.Metrics)
	if err != nil {
		return nil, fmt.Errorf("gateway: register metrics: %w", err)
	}

	r := routes{mux: http.NewServeMux(), meters: meters, allowed: map[string][]string{}}
	streams := newTurnstile(cfg.MaxStreams, meters.streams)
	for _, op := range operations {
		r.addOperation(op, guard{op: op, cfg: cfg, streams: streams, next: translator})
	}
	r.add(http.MethodGet, "/health", health(cfg))
	r.add(http.MethodGet, "/ready", newReady(cfg, d))
	r.add(http.MethodGet, "/metrics", d.MetricsHandler)
	r.mux.HandleFunc("/", notFound)
	return sameOrigin(plainPath(r.mux)), nil
}

// newTranslator returns the grpc-gateway mux. It passes no header on in either direction: what a scheduler learns stands
// in the message, and what a client learns in the body.
func newTranslator(cfg Config, d Deps) (*runtime.ServeMux, error) {
	f := failures{log: d.Log}
	no := func(string) (string, bool) { return "", false }
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, lines{}),
		runtime.WithMarshalerOption(eventStream, serverSent{}),
		runtime.WithErrorHandler(f.answer),
		runtime.WithStreamErrorHandler(f.stream),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, _ int) {
			notFound(w, r)
		}),
		runtime.WithForwardResponseOption(begin),
		runtime.WithIncomingHeaderMatcher(no),
		runtime.WithOutgoingHeaderMatcher(no),
		runtime.WithOutgoingTrailerMatcher(no),
		runtime.WithDisableChunkedEncoding(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	// The registrations keep the context for nothing: with clients of ours there is no connection to close.
	ctx := context.Background()
	return mux, errors.Join(
		adminv1.RegisterSourceServiceHandlerClient(ctx, mux, newSources(d)),
		adminv1.RegisterDeadLetterServiceHandlerClient(ctx, mux, adminv1.NewDeadLetterServiceClient(d.Admin)),
		adminv1.RegisterHookServiceHandlerClient(ctx, mux, adminv1.NewHookServiceClient(d.Admin)),
		eventv1.RegisterEventServiceHandlerClient(ctx, mux, watcher{eventv1.NewEventServiceClient(d.Leader), cfg.CallTimeout}),
	)
}

// sources sends the calls that the leader alone serves to the leader.
type sources struct {
	adminv1.SourceServiceClient
	leader adminv1.SourceServiceClient
}

func newSources(d Deps) sources {
	return sources{adminv1.NewSourceServiceClient(d.Admin), adminv1.NewSourceServiceClient(d.Leader)}
}

// DeleteSource asks the leader where deliveries are to be moved.
func (s sources) DeleteSource(
	ctx context.Context, req *adminv1.DeleteSourceRequest, opts ...grpc.CallOption,
) (*adminv1.DeleteSourceResponse, error) {
	if req.GetDeliveries() != "" {
		return s.leader.DeleteSource(ctx, req, opts...)
	}
	return s.SourceServiceClient.DeleteSource(ctx, req, opts...)
}

// sameOrigin refuses what a browser sends from a page of another site: the API listens on loopback, where any page
// could reach it.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "forbidden", map[string]any{"message": "a page of another site asked"})
	}))
	return protection.Handler(next)
}
