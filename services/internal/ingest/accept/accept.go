// Package accept takes one request from its arrival to its outcome: source, verification, dedupe key, commit. It knows
// neither HTTP nor gRPC.
package accept

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ankusa.dev/ferry"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
)

// Config of an Acceptor.
type Config struct {
	// MaxBodyBytes is the cap of a body. Default 8,000,000.
	MaxBodyBytes int
	// MaxReadingBytes bounds what all bodies that are held take beyond 8 KiB each. Default 256 MiB.
	MaxReadingBytes int64
	// MaxBatch and MaxBatchBytes bound one commit. Default 256 hooks, 8 MiB; a heavier hook is committed alone.
	MaxBatch      int
	MaxBatchBytes int64
	// CommitsInFlight is how many commits of one partition may run at once, each with a writer of its own. Default 1,
	// which is best where commits wait for one disk: they share its syncs, so that more of them are but smaller. It
	// pays to have more where each commit takes its time however many there are.
	CommitsInFlight int
	// MaxDelay is how long a commit waits for company. Default 0.
	MaxDelay time.Duration
	// MaxQueue and MaxQueueBytes bound what waits or is being committed, for each partition. Default 10,000 and 256 MiB.
	MaxQueue      int
	MaxQueueBytes int64
	// StartDeadline is the longest wait for the commit to start. Default 15 s.
	StartDeadline time.Duration
	// CommitTimeout is the longest that one commit may take, after which its fate is unknown. Default 10 s.
	CommitTimeout time.Duration
	// TenantFromURL: requests name a tenant beside the source.
	TenantFromURL bool
}

// Default returns the configuration that each field's comment states.
func Default() Config {
	return Config{
		MaxBodyBytes: 8_000_000, MaxReadingBytes: 256 << 20, MaxBatch: 256, MaxBatchBytes: 8 << 20,
		CommitsInFlight: 1, MaxQueue: 10_000, MaxQueueBytes: 256 << 20, StartDeadline: 15 * time.Second,
		CommitTimeout: 10 * time.Second,
	}
}

// Writer makes hooks durable, one batch of a partition at a time: a store.Writer.
type Writer interface {
	Commit(ctx context.Context, partition uint8, batch []store.Incoming) ([]store.Accepted, []hook.Group, error)
}

// Notifier is told what was committed, and what may have been. It does not block.
type Notifier interface {
	Committed(groups []hook.Group)
	Uncertain(partition uint8, bindings []store.Binding)
	// Full says that it can remember no more, so that nothing more may be committed.
	Full() bool
}

// Deps of an Acceptor.
type Deps struct {
	Sources sourcecache.Reader
	// Writers are as many as Config.CommitsInFlight, and share no counters.
	Writers []Writer
	// Partition holds the hooks of a tenant and one part of a spread source.
	Partition func(tenant string, part uint32) uint8
	Notifier  Notifier
	Metrics   prometheus.Registerer
	Log       *zap.Logger
}

// Acceptor is safe for concurrent use. Close it to finish what it has begun.
type Acceptor struct {
	config  Config
	deps    Deps
	cache   *sourcecache.Cache[*intake]
	ids     minter
	reading budget
	// inflation has a place for every processor.
	inflation inflation
	pipes     pipes
	metrics   *metrics
	log       *zap.Logger
}

// New makes an acceptor.
func New(c Config, d Deps) *Acceptor {
	a := &Acceptor{config: c, deps: d, metrics: newMetrics(d.Metrics), log: d.Log}
	a.inflation = make(inflation, runtime.GOMAXPROCS(0))
	a.reading.limit, a.pipes.epoch = c.MaxReadingBytes, time.Now()
	caching := sourcecache.Default()
	caching.MaxUnknown = 2 * caching.MaxSources // under routing by tenant a shared source has one for every tenant
	a.cache = sourcecache.New(d.Sources, caching, a.intake, a.forget)
	a.registerGauges(d.Metrics)
	return a
}

// Target is the source that a request is for, and the tenant that owns what comes of it.
type Target struct {
	intake *intake
	tenant string
}

// SourceID of the target's source.
func (t Target) SourceID() string { return t.intake.id }

// Find looks up the source of a request: by source_id where tenant is empty, else the tenant's own source of the name,
// else the shared one. The result is zero if it was found, else UnknownSource or StoreUnavailable, and counted.
func (a *Acceptor) Find(ctx context.Context, tenant, name string) (Target, Result) {
	owner, name, ok := a.owner(tenant, name)
	if !ok {
		return Target{}, a.Refuse(Result{Kind: UnknownSource})
	}
	in, err := a.cache.Source(ctx, owner, name)
	if errors.Is(err, store.ErrSourceNotFound) && a.config.TenantFromURL && owner != hook.DefaultTenant {
		in, err = a.cache.Source(ctx, hook.DefaultTenant, name)
	}
	switch {
	case errors.Is(err, store.ErrSourceNotFound):
		return Target{}, a.Refuse(Result{Kind: UnknownSource})
	case err != nil:
		return Target{}, a.Refuse(Result{Kind: StoreUnavailable, Err: err})
	default:
		return Target{intake: in, tenant: owner}, Result{}
	}
}

func (a *Acceptor) owner(tenant, name string) (string, string, bool) {
	if a.config.TenantFromURL {
		return tenant, name, source.ValidName(tenant) && source.ValidName(name)
	}
	owner, plain, ok := source.SplitID(name)
	return owner, plain, ok && tenant == ""
}

// Accept takes a request of a target from verification to commit, and counts and logs what came of it. It keeps headers
// and body. now is when the request was read. Only Committed and Duplicate mean that the store has it.
func (a *Acceptor) Accept(ctx context.Context, t Target, headers []hook.Header, body []byte, now time.Time) Result {
	r := a.try(ctx, t, headers, body, now)
	if errors.Is(r.Err, store.ErrSourceChanged) { // by somebody else, within the cache's TTL: judge by what it is now
		a.cache.Forget(t.intake.source.Tenant, t.intake.source.Name)
		again, missing := a.again(ctx, t)
		if missing.Kind != 0 {
			return missing
		}
		// A deletion under way may yet fail: where the store still says so, the sender is told to come back.
		t, r = again, a.try(ctx, again, headers, body, now)
	}
	a.finish(t, r, now)
	return r
}

func (a *Acceptor) again(ctx context.Context, t Target) (Target, Result) {
	if a.config.TenantFromURL {
		return a.Find(ctx, t.tenant, t.intake.source.Name)
	}
	return a.Find(ctx, "", t.intake.id)
}

func (a *Acceptor) try(ctx context.Context, t Target, headers []hook.Header, body []byte, now time.Time) Result {
	in := t.intake
	r := &record{at: now, hook: hook.Hook{
		Tenant: t.tenant, SourceID: in.id, Incarnation: in.source.Incarnation, ReceivedAt: now.UnixMilli(),
		Headers: headers, Body: body,
	}}
	if in.verifier != nil {
		if reason := in.verifier.Verify(&r.hook, now); reason != "" {
			return Result{Kind: VerificationFailed, Reason: string(reason)}
		}
		r.hook.Verification = hook.Verified
	}
	if a.deps.Notifier.Full() {
		return Result{Kind: Overload}
	}
	if err := a.complete(ctx, r, t); err != nil {
		return a.failed(ctx, err)
	}
	pipe, err := a.pipe(r.partition)
	if err != nil {
		return a.failed(ctx, err)
	}
	out, err := pipe.Do(ctx, r)
	if err != nil {
		return a.failed(ctx, err)
	}
	if out.Kind == Committed {
		in.countKeyless(r.incoming.Bindings)
	}
	return out
}

// complete sets what the commit needs beyond the request. It may have to wait for its turn to inflate the body.
func (a *Acceptor) complete(ctx context.Context, r *record, t Target) error {
	if !t.intake.source.Inflates(&r.hook) {
		a.derive(r, t)
		return nil
	}
	return a.inflation.do(ctx, a.config.StartDeadline, func() { a.derive(r, t) })
}

func (a *Acceptor) derive(r *record, t Target) {
	in, h := t.intake, &r.hook
	h.ID = a.ids.mint(r.at)
	if in.source.Dedupe != nil {
		h.DedupeKey = in.source.Dedupe.Key(h, a.config.MaxBodyBytes)
		r.incoming.DedupeTTL = in.source.Dedupe.TTL
	}
	r.incoming.Hook, r.incoming.Owner, r.incoming.Name = h, in.source.Tenant, in.source.Name
	r.incoming.Bindings = in.bindingsFor(t.tenant, h)
	r.partition = a.deps.Partition(t.tenant, in.source.Part(h))
	h.Headers = stored(h.Headers)
	r.size = int64(h.StoredSize())
}

// failed turns what kept a hook from its commit into a result: never into an acknowledgement.
func (a *Acceptor) failed(ctx context.Context, err error) Result {
	switch {
	case errors.Is(err, ferry.ErrRejected), errors.Is(err, ferry.ErrClosed), errors.Is(err, errStale):
		return Result{Kind: Overload, Err: err}
	case errors.Is(err, kv.ErrTooLarge):
		return Result{Kind: PayloadTooLarge, Limit: a.config.MaxBodyBytes, Err: err}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return Result{Kind: Gone, Err: err}
	default:
		return Result{Kind: StoreUnavailable, Err: err}
	}
}

// finish counts and logs the outcome of a request to a known source.
func (a *Acceptor) finish(t Target, r Result, began time.Time) {
	s := t.intake.series
	s.duration.Observe(time.Since(began).Seconds())
	if o, ok := r.Kind.outcome(); ok {
		s.outcomes[o].Inc()
	}
	switch r.Kind {
	case Committed, Duplicate:
		return
	case VerificationFailed:
		t.intake.failures.Inc()
	case Overload:
		a.metrics.shed.Inc()
	case PayloadTooLarge:
		a.metrics.refused.WithLabelValues(r.Kind.Code()).Inc()
	}
	a.report(r, t)
}

// Refuse counts and logs a request that did not get as far as Accept, and returns its result.
func (a *Acceptor) Refuse(r Result) Result {
	if r.Kind == Overload {
		a.metrics.shed.Inc()
	} else {
		a.metrics.refused.WithLabelValues(r.Kind.Code()).Inc()
	}
	a.report(r, Target{})
	return r
}

func (a *Acceptor) report(r Result, t Target) {
	level := zap.DebugLevel
	if r.Kind == Overload || r.Kind == StoreUnavailable {
		level = zap.WarnLevel
	}
	entry := a.log.Check(level, "request not accepted")
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String("error", r.Kind.Code()), zap.String("reason", r.Reason), zap.NamedError("cause", r.Err)}
	if t.intake != nil {
		fields = append(fields, zap.String("tenant", t.tenant), zap.String("source_id", t.intake.id))
	}
	entry.Write(fields...)
}

// Close finishes the commits that have begun or wait; from its call on every request is an Overload. When ctx ends
// first, what waits is given up, unanswered by the store and so by 503.
func (a *Acceptor) Close(ctx context.Context) error {
	if err := a.pipes.close(ctx); err != nil {
		return fmt.Errorf("finish commits: %w", err)
	}
	return nil
}

// FailedWithin says whether a commit failed within the last d.
func (a *Acceptor) FailedWithin(d time.Duration) bool {
	at := a.pipes.failedAt.Load()
	return at != 0 && time.Since(a.pipes.epoch.Add(time.Duration(at))) < d
}

// MaxBodyBytes is the cap of a body.
func (a *Acceptor) MaxBodyBytes() int { return a.config.MaxBodyBytes }
