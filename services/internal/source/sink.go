package source

import (
	"slices"
	"time"

	"ankusa.dev/services/internal/hook"
)

// Types of sinks.
const (
	SinkLog  = "log"
	SinkHTTP = "http"
)

var (
	sinkTypes = []string{SinkLog, SinkHTTP}
	// sinkOrdered are the types that confirm a hook before the next one of its lane is sent, and so keep a lane's order.
	sinkOrdered = []string{SinkLog, SinkHTTP}
	// sinkBatching are the types that gather hooks of many deliveries for one request.
	sinkBatching = []string{"sqs", "google_pubsub"}
	sinkNotYet   = []string{"rabbitmq", "kafka", "nats", "redis", "sqs", "google_pubsub"}
)

// Batching says of every sink type that gathers deliveries whether it does.
func Batching() map[string]bool {
	types := make(map[string]bool, len(sinkBatching))
	for _, t := range sinkBatching {
		types[t] = true
	}
	return types
}

// KnownSink says whether there are sinks of a type.
func KnownSink(sinkType string) bool { return slices.Contains(sinkTypes, sinkType) }

// Sink is one destination of a source's hooks.
type Sink struct {
	Type string
	// HTTP holds the settings of SinkHTTP; zero for every other type.
	HTTP HTTP
	// Ordered delivers the hooks of one lane one at a time, in the order of their acknowledgement.
	Ordered bool
	// OrderingKey finds a hook's lane; the zero value makes the sink one lane.
	OrderingKey OrderingKey
}

// HTTP is a sink that sends each hook's body to a URL.
type HTTP struct {
	URL string
	// Method in lower case: post, put or patch.
	Method string
	// Headers added to each request, by lower-case name.
	Headers map[string]Secret
	Timeout time.Duration
	// Secrets sign each request, newest first: 1 to MaxSecrets, or none where AllowUnsigned says so.
	Secrets       []Secret
	AllowUnsigned bool
	// MaxResponse is the most bytes that are read of an answer, counted after inflating.
	MaxResponse int
	// CACertFile is the path of a private authority's certificate, or empty.
	CACertFile       string
	AllowInsecureTLS bool
}

// DefaultHTTP is an HTTP sink with every default and nothing else.
func DefaultHTTP() HTTP {
	return HTTP{Method: "post", Timeout: DefaultHTTPTimeout, MaxResponse: DefaultMaxResponse}
}

// OrderingKey says where the key of a lane stands: at most one of the fields is set.
type OrderingKey struct {
	Header string
	// JSON is a dot path into the body.
	JSON string
}

// Retry is laid over the instance's retry policy; nil fields leave the instance's.
type Retry struct {
	Base, Max   *time.Duration
	MaxAttempts *uint32
	Jitter      *bool
	// MaxElapsed is the horizon.
	MaxElapsed *time.Duration
}

// RetryPolicy is the instance's policy with the source's own laid over it.
func (s *Source) RetryPolicy(base hook.RetryPolicy) hook.RetryPolicy {
	overlay(&base.Base, s.Retry.Base)
	overlay(&base.Max, s.Retry.Max)
	overlay(&base.MaxAttempts, s.Retry.MaxAttempts)
	overlay(&base.Jitter, s.Retry.Jitter)
	overlay(&base.Horizon, s.Retry.MaxElapsed)
	return base
}

func overlay[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}
