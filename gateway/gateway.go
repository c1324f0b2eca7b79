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
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

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
	// CallTimeout bounds one call to a scheduler, and so a request, the event stream apart. Default 10 s; more than 0.
	CallTimeout time.Duration
	// ReadyTimeout bounds the health check behind GET /ready. Default 2 s; more than 0.
	ReadyTimeout time.Duration
	// StreamWriteTimeout bounds the sending of one event to a client that reads too slowly; past it the stream is cut,
	// and the client resumes. Default 30 s; more than 0.
	StreamWriteTimeout time.Duration
}

// Default returns the defaults, without the names of the deployment.
func Default() Config {
	return Config{
		MaxBodyBytes:       64 << 10,
		CallTimeout:        10 * time.Second,
		ReadyTimeout:       2 * time.Second,
		StreamWriteTimeout: 30 * time.Second,
	}
}

// Validate returns every fault at once, each beginning with its key.
func (c Config) Validate() error {
	var faults []error
	if c.MaxBodyBytes < 1 {
		faults = append(faults, fmt.Errorf("gateway.max_body_bytes must be at least 1, got %d", c.MaxBodyBytes))
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

// Peers are the connections to the schedulers. They stay the caller's, who closes them after the last request.
type Peers struct {
	// Admin reaches any scheduler. It serves the sources, the dead letters and the health behind GET /ready.
	Admin grpc.ClientConnInterface
	// Leader reaches the leading scheduler alone. It serves the events.
	Leader grpc.ClientConnInterface
}

// New returns the handler of the whole API, GET /health, /ready and /metrics included; metrics answers the last.
//
// The handler bounds bodies, calls and the sending of events. Whoever serves it bounds the rest: set ReadHeaderTimeout,
// ReadTimeout, IdleTimeout and MaxHeaderBytes on the http.Server. WriteTimeout may be set; the event stream lifts it.
// The event stream ends with its request's context: cancel the server's BaseContext before Shutdown, which waits for
// streams. There is no authentication: bind it to loopback, or put something in front.
func New(cfg Config, peers Peers, metrics http.Handler, log *zap.Logger) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	failures := failures{log: log}
	mux := newTranslator(failures)
	// The registrations keep the context for nothing: with a client of ours there is no connection to close.
	err := errors.Join(
		adminv1.RegisterSourceServiceHandlerClient(context.Background(), mux, adminv1.NewSourceServiceClient(peers.Admin)),
		adminv1.RegisterDeadLetterServiceHandlerClient(context.Background(), mux, adminv1.NewDeadLetterServiceClient(peers.Admin)),
		eventv1.RegisterEventServiceHandlerClient(context.Background(), mux, watcher{eventv1.NewEventServiceClient(peers.Leader), cfg.CallTimeout}),
	)
	if err != nil {
		return nil, fmt.Errorf("gateway: register services: %w", err)
	}
	operations, err := operationsOf(
		adminv1.File_ankusa_admin_v1_source_proto.Services(),
		adminv1.File_ankusa_admin_v1_dead_letter_proto.Services(),
		eventv1.File_ankusa_event_v1_event_proto.Services(),
	)
	if err != nil {
		return nil, fmt.Errorf("gateway: read the routes of the protos: %w", err)
	}

	r := routes{mux: http.NewServeMux(), allowed: map[string][]string{}}
	for _, op := range operations {
		r.addOperation(op, guard{op: op, cfg: cfg, next: mux})
	}
	r.add(http.MethodGet, "/health", health(cfg))
	r.add(http.MethodGet, "/ready", ready{client: healthv1.NewHealthClient(peers.Admin), timeout: cfg.ReadyTimeout})
	r.add(http.MethodGet, "/metrics", metrics)
	r.mux.HandleFunc("/", notFound)
	return sameOrigin(r.mux), nil
}

// newTranslator returns the grpc-gateway mux. It passes no header on in either direction: what a scheduler learns stands
// in the message, and what a client learns in the body.
func newTranslator(f failures) *runtime.ServeMux {
	no := func(string) (string, bool) { return "", false }
	return runtime.NewServeMux(
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
