// Package scheduler runs one scheduler: it stands for election, and while it leads it claims rows, leases attempts to
// runners and settles outcomes. Every scheduler serves the admin services; only the leader serves dispatch and events.
package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
)

// Config of a scheduler.
type Config struct {
	Core core.Config
	// Retry is the policy of sources without settings of their own.
	Retry hook.RetryPolicy
	// Lease is how long a leader leads without renewing; Renew is how often it renews.
	Lease, Renew time.Duration
	// Exclusive: the store is open in this process alone. So whoever led before is gone, with its runners, nobody else can
	// take the lease, which is not renewed, and runners of the process cannot outlive the leader, which tells them of no
	// pulse.
	Exclusive bool
	// History keeps what happened to deliveries, for Retention.
	History   bool
	Retention time.Duration
	// Rules by which sources are validated.
	Rules source.Rules
}

// Validate returns every fault of the settings that a scheduler could not work with, each with its key in the configuration
// file. What a file may say, which is less, package config says; the policy and the rules come from it whole.
func (c Config) Validate() error {
	faults := []error{c.Core.Validate()}
	if c.Renew <= 0 {
		faults = append(faults, fmt.Errorf("scheduler.renew_ms must be positive, got %d", c.Renew.Milliseconds()))
	}
	if c.Lease < 2*c.Renew {
		faults = append(faults, fmt.Errorf("scheduler.lease_ms must be at least twice scheduler.renew_ms, got %d", c.Lease.Milliseconds()))
	}
	if c.History && c.Retention <= 0 {
		faults = append(faults, fmt.Errorf("scheduler.history_retention_hours must be positive, got %g", c.Retention.Hours()))
	}
	return errors.Join(faults...)
}

// Deps are what a scheduler needs of its process.
type Deps struct {
	Store   *store.Store
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Health gets the state of the dispatch and event services; it may be nil.
	Health *health.Server
	// Collector collects old versions of the store; nil where the store does it by itself or somebody else does.
	Collector kv.Collector
	// CheckSource refuses sources for reasons beyond their form, such as where they may send; it may be nil.
	CheckSource func(*source.Source) error
	// Reload reads the process's configuration again, and returns the keys that it applied and those that wait for a
	// restart. Its error is shown to operators. It may be nil.
	Reload func() (applied, restart []string, err error)
	// Missing is what keeps the process from its work, as words by the names of the checks; it may be nil.
	Missing func(context.Context) map[string]string
}

// Scheduler is one candidate for leadership.
type Scheduler struct {
	adminv1.UnimplementedSourceServiceServer
	adminv1.UnimplementedDeadLetterServiceServer
	adminv1.UnimplementedHookServiceServer
	adminv1.UnimplementedPipelineServiceServer
	adminv1.UnimplementedProcessServiceServer
	dispatchv1.UnimplementedDispatchServiceServer
	eventv1.UnimplementedEventServiceServer

	cfg     Config
	deps    Deps
	log     *zap.Logger
	id      hook.RunID
	sources *sourcecache.Cache[*source.Source]
	term    atomic.Pointer[term]
	live    atomic.Pointer[live]
	// reconfiguring is held while the settings are replaced, so that a leader gets them in order.
	reconfiguring sync.Mutex
	metrics       *metrics
}

// New makes a scheduler; Run starts it.
func New(cfg Config, d Deps) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Scheduler{
		cfg: cfg, deps: d, log: d.Log, metrics: newMetrics(d.Metrics),
		sources: sourcecache.Plain(d.Store, sourcecache.Default()),
	}
	if _, err := rand.Read(s.id[:]); err != nil {
		return nil, fmt.Errorf("make scheduler id: %w", err)
	}
	s.live.Store(&live{cfg.Core, cfg.Retry})
	d.Metrics.MustRegister(newInflight(s))
	s.serving(false)
	return s, nil
}

// Register adds the scheduler's services to a server.
func (s *Scheduler) Register(r grpc.ServiceRegistrar) {
	adminv1.RegisterSourceServiceServer(r, s)
	adminv1.RegisterDeadLetterServiceServer(r, s)
	adminv1.RegisterHookServiceServer(r, s)
	adminv1.RegisterPipelineServiceServer(r, s)
	adminv1.RegisterProcessServiceServer(r, s)
	dispatchv1.RegisterDispatchServiceServer(r, s)
	eventv1.RegisterEventServiceServer(r, s)
}

// Run stands for election and leads, again and again, until the context is cancelled. No error of the store ends it.
func (s *Scheduler) Run(ctx context.Context) error {
	s.serveAdmin(healthpb.HealthCheckResponse_SERVING)
	for {
		lease, began, ok := s.stand(ctx)
		if !ok {
			break
		}
		if err := s.lead(ctx, lease, began); err != nil && ctx.Err() == nil {
			s.log.Warn("leadership ended", zap.Uint64("epoch", lease.Epoch), zap.Error(err))
			sleep(ctx, s.cfg.Renew/2) // a term that cannot even begin must not be tried without end
		}
	}
	s.serveAdmin(healthpb.HealthCheckResponse_NOT_SERVING)
	return nil
}

// stand waits until the lease is this scheduler's, and tells when it began to take it; ok is false when the context is
// cancelled.
func (s *Scheduler) stand(ctx context.Context) (lease store.Lease, began time.Time, ok bool) {
	var seen store.Lease
	var since time.Time
	for first := true; ctx.Err() == nil; first = false {
		if !first && !sleep(ctx, s.cfg.Renew/2) {
			break
		}
		now, err := s.within(ctx, func(ctx context.Context) (store.Lease, error) { return s.deps.Store.LeaderLease(ctx) })
		if err != nil {
			s.log.Warn("leader lease not readable", zap.Error(err))
			continue
		}
		if now != seen || since.IsZero() {
			seen, since = now, time.Now()
		}
		if free := now.Holder == (hook.RunID{}); !free && !s.cfg.Exclusive && time.Since(since) < s.cfg.Lease+s.cfg.Renew {
			continue
		}
		began := time.Now()
		lease, err := s.within(ctx, func(ctx context.Context) (store.Lease, error) {
			return s.deps.Store.TakeLease(ctx, now, s.id)
		})
		if err == nil {
			return lease, began, true
		}
		if !errors.Is(err, store.ErrLeaseChanged) {
			s.log.Warn("leader lease not taken", zap.Error(err))
		}
	}
	return lease, began, false
}

// within bounds one call about the lease by the time in which it must have an answer.
func (s *Scheduler) within(ctx context.Context, call func(context.Context) (store.Lease, error)) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease)
	defer cancel()
	return call(ctx)
}

// lead runs one term, from the fence to its end. The term ends when the lease could not be renewed in time, when a later
// leader has fenced it, or when the context is cancelled: then the lease is given back.
func (s *Scheduler) lead(ctx context.Context, lease store.Lease, began time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := s.newRenewal(lease, began)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		cancel(r.run(ctx))
	}()
	err := s.serve(ctx, cancel, r)
	cancel(err)
	<-renewed
	if !errors.Is(context.Cause(ctx), store.ErrDeposed) && !errors.Is(context.Cause(ctx), store.ErrLeaseChanged) {
		s.resign(r.lease)
	}
	return context.Cause(ctx)
}

func (s *Scheduler) resign(lease store.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Renew)
	defer cancel()
	if err := s.deps.Store.ReleaseLease(ctx, lease); err != nil {
		s.log.Warn("leader lease not given back", zap.Error(err))
	}
}

// fenceTimeout bounds the fencing of all partitions: a leader that cannot fence gives the lease back.
const fenceTimeout = 30 * time.Second

// serve fences what came before and runs the term.
func (s *Scheduler) serve(ctx context.Context, end context.CancelCauseFunc, r *renewal) error {
	var leader *store.Leader
	err := bounded(ctx, fenceTimeout, func(ctx context.Context) (err error) {
		leader, err = s.deps.Store.Lead(ctx, r.taken, store.LeaderOptions{History: s.cfg.History})
		return err
	})
	if err != nil {
		return fmt.Errorf("fence earlier leaders: %w", err)
	}
	t, err := s.newTerm(ctx, end, leader, r.valid)
	if err != nil {
		return fmt.Errorf("begin a term: %w", err)
	}
	s.log.Info("leading", zap.Uint64("epoch", leader.Epoch()))
	s.term.Store(t)
	if now := s.live.Load(); now != t.began {
		t.configure(now)
	}
	s.serving(true)
	err = t.run(ctx)
	s.serving(false)
	s.term.Store(nil)
	t.streams.close()
	return err
}

// errLeaseLapsed: the lease was not renewed in time.
var errLeaseLapsed = errors.New("leader lease lapsed")

// renewal keeps the lease.
type renewal struct {
	scheduler *Scheduler
	taken     store.Lease // as the term began
	lease     store.Lease // as it was last renewed; run owns it
	began     time.Time
	// until is when the lease lapses, counted from began: the last renewal that succeeded began one lease before. What a
	// standby counts from is later.
	until atomic.Int64
}

func (s *Scheduler) newRenewal(lease store.Lease, began time.Time) *renewal {
	r := &renewal{scheduler: s, taken: lease, lease: lease, began: began}
	r.until.Store(int64(s.cfg.Lease))
	return r
}

// valid says whether nobody else can lead yet.
func (r *renewal) valid() bool { return r.scheduler.cfg.Exclusive || r.left() > 0 }

func (r *renewal) left() time.Duration { return time.Duration(r.until.Load()) - time.Since(r.began) }

// run renews until the lease has lapsed or is another's. In a store of this process alone that cannot happen, and each
// renewal would be a synced commit that tells nobody anything.
func (r *renewal) run(ctx context.Context) error {
	if r.scheduler.cfg.Exclusive {
		<-ctx.Done()
		return nil
	}
	for sleep(ctx, min(r.scheduler.cfg.Renew, r.left())) {
		began := time.Since(r.began)
		lease, err := r.renew(ctx)
		switch {
		case err == nil:
			r.lease = lease
			r.until.Store(int64(began + r.scheduler.cfg.Lease))
		case errors.Is(err, store.ErrLeaseChanged):
			return err
		case !r.valid():
			return fmt.Errorf("%w: %w", errLeaseLapsed, err)
		}
	}
	return nil
}

// renew has until the lease lapses, and no longer.
func (r *renewal) renew(ctx context.Context) (store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, r.left())
	defer cancel()
	return r.scheduler.deps.Store.RenewLease(ctx, r.lease)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// serving tells clients, which look for the leader by its health.
func (s *Scheduler) serving(leads bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if leads {
		status = healthpb.HealthCheckResponse_SERVING
	}
	s.metrics.leads(leads)
	s.setHealth(status, dispatchv1.DispatchService_ServiceDesc.ServiceName, eventv1.EventService_ServiceDesc.ServiceName,
		adminv1.PipelineService_ServiceDesc.ServiceName)
}

func (s *Scheduler) serveAdmin(status healthpb.HealthCheckResponse_ServingStatus) {
	s.setHealth(status, adminv1.SourceService_ServiceDesc.ServiceName, adminv1.DeadLetterService_ServiceDesc.ServiceName,
		adminv1.HookService_ServiceDesc.ServiceName, adminv1.ProcessService_ServiceDesc.ServiceName)
}

func (s *Scheduler) setHealth(status healthpb.HealthCheckResponse_ServingStatus, services ...string) {
	for _, name := range services {
		if s.deps.Health != nil {
			s.deps.Health.SetServingStatus(name, status)
		}
	}
}
