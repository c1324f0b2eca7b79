// Package httpsink is the destination that is an HTTP receiver: it gets a hook's body byte for byte, signed by Standard
// Webhooks, with what is known about the hook in headers.
package httpsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/egress"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
)

// Config of a Sink.
type Config struct {
	// Version of the product, for the User-Agent.
	Version string
	// Policy says what may be reached.
	Policy *egress.Policy
	// IdleConnections is how many connections to one receiver stay open between deliveries. Default 256.
	IdleConnections int
	// ConnectionIdle is how long one stays open unused. Default 30 s.
	ConnectionIdle time.Duration
	// MaxPools bounds the receivers with connections. Default 1,024.
	MaxPools int
	// PoolIdle is how long a receiver's pool is kept unused. Default 60 s.
	PoolIdle time.Duration
}

// Default returns the configuration that each field's comment states; Version and Policy are the caller's.
func Default() Config {
	return Config{
		IdleConnections: 256, ConnectionIdle: 30 * time.Second,
		MaxPools: 1024, PoolIdle: time.Minute,
	}
}

// Sink delivers over HTTP/1.1 and HTTP/2. Use New.
type Sink struct {
	agent   string
	policy  *egress.Policy
	pools   *pools
	metrics *metrics
	buffers sync.Pool // of *[bufferSize]byte, for reading answers
	targets memo[string, *url.URL]
	signers memo[string, *signer]
}

var _ sink.Sink = (*Sink)(nil)

// New makes the sink and registers its metrics.
func New(c Config, r prometheus.Registerer) (*Sink, error) {
	s := &Sink{agent: "Ankusa/" + c.Version, policy: c.Policy, metrics: newMetrics()}
	s.pools = newPools(c, s.metrics)
	if err := s.metrics.register(r, s.pools); err != nil {
		return nil, fmt.Errorf("http sink: %w", err)
	}
	return s, nil
}

// Close closes all connections, for good.
func (s *Sink) Close() { s.pools.close() }

// Deliver makes one request. It is not repeated here, except at once where a connection that had been idle turns out to
// be closed; and no redirect is followed. The status decides, whatever becomes of the rest of the response.
func (s *Sink) Deliver(ctx context.Context, d *sink.Delivery) hook.Outcome {
	set := &d.Sink.HTTP
	target, err := s.targets.of(set.URL, s.policy.CheckURL)
	if err != nil {
		return permanent(err.Error())
	}
	id := d.Hook.ID.String()
	signature, fault := s.sign(set, id, d.Hook.Body, time.Now())
	if fault != "" {
		return permanent(fault)
	}
	pool, err := s.pools.acquire(keyOf(target, set))
	if err != nil {
		return transient(err.Error())
	}
	defer s.pools.release(pool)
	return s.exchange(ctx, pool.transport, s.request(target, d, id, signature), d)
}

// Causes of the end of an exchange's context.
var (
	errTimeout = errors.New("the sink's timeout has passed")
	errCut     = errors.New("the answer is too long or too slow")
)

// exchange sends the request and judges what comes back within the sink's timeout.
func (s *Sink) exchange(ctx context.Context, t http.RoundTripper, r http.Request, d *sink.Delivery) hook.Outcome {
	set := &d.Sink.HTTP
	cancel := d.Cancel
	if cancel == nil {
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
	}
	limit := time.AfterFunc(set.Timeout, func() { cancel(errTimeout) })
	defer limit.Stop()
	response, err := t.RoundTrip(r.WithContext(ctx)) // which copies it
	if err != nil {
		return s.failure(ctx, err, set.Timeout)
	}
	first := s.readAnswer(response, set.MaxResponse, func() { cancel(errCut) })
	o := judge(response, d.Attempt, time.Now())
	o.Response = first
	return o
}

func (s *Sink) failure(ctx context.Context, err error, timeout time.Duration) hook.Outcome {
	var refused *egress.DeniedError
	switch {
	case errors.As(err, &refused):
		return permanent(refused.Error())
	case errors.Is(context.Cause(ctx), errTimeout):
		return transient(fmt.Sprintf("http: timeout %dms", timeout.Milliseconds()))
	default:
		return transient("http: " + phrase(err))
	}
}

func permanent(reason string) hook.Outcome {
	return hook.Outcome{Class: hook.Permanent, Reason: reason}
}

func transient(reason string) hook.Outcome {
	return hook.Outcome{Class: hook.Transient, Reason: reason}
}

// request carries the body so that it can be sent again on another connection.
func (s *Sink) request(target *url.URL, d *sink.Delivery, id string, signature signature) http.Request {
	body := d.Hook.Body
	r := http.Request{
		Method: method(d.Sink.HTTP.Method), URL: target, Host: target.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: s.header(d, id, signature), ContentLength: int64(len(body)),
		Body: http.NoBody,
	}
	r.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}

func method(name string) string {
	if name == "post" {
		return http.MethodPost
	}
	return strings.ToUpper(name)
}

// keyOf names the pool that a sink shares with every other that reaches the same receiver in the same way.
func keyOf(target *url.URL, set *source.HTTP) poolKey {
	k := poolKey{secure: target.Scheme == "https", host: strings.ToLower(target.Host)}
	if k.secure {
		k.authority, k.unverified = set.CACertFile, set.AllowInsecureTLS
	}
	return k
}
