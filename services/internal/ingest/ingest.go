// Package ingest is the role that takes hooks: it verifies them, makes them durable, answers, and tells the leading
// scheduler.
package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/ingest/grpcapi"
	"ankusa.dev/services/internal/ingest/httpapi"
	"ankusa.dev/services/internal/ingest/notify"
	"ankusa.dev/services/internal/refusal"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/telemetry"
)

// Store is what ingest needs of the store: a *store.Store.
type Store interface {
	sourcecache.Reader
	NewWriter(id hook.RunID) *store.Writer
	Partition(tenant string, spread uint32) uint8
	Ready(ctx context.Context) error
}

// Deps of an Ingest.
type Deps struct {
	Store Store
	// Scheduler reaches the leading scheduler.
	Scheduler grpc.ClientConnInterface
	// Listener takes the hooks over HTTP. Run closes it.
	Listener net.Listener
	Process  telemetry.Process
	Metrics  *telemetry.Metrics
	Log      *zap.Logger
}

// Ingest is one run of the role.
type Ingest struct {
	config   Config
	deps     Deps
	id       hook.RunID
	acceptor *accept.Acceptor
	notifier *notify.Notifier
	writers  writers
	server   *http.Server
}

// New makes the role. It fails when the configuration does, with every fault at once.
func New(c Config, d Deps) (*Ingest, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	i := &Ingest{config: c, deps: d}
	rand.Read(i.id[:])
	i.writers = newWriters(d.Store, i.id, c.Accept.CommitsInFlight)
	i.notifier = notify.New(d.Scheduler, i.writers.ids(), i.writers.flag(), d.Metrics, d.Log)
	i.acceptor = accept.New(c.Accept, accept.Deps{
		Sources: d.Store, Writers: i.writers.forCommits(), Partition: d.Store.Partition, Notifier: i.notifier,
		Metrics: d.Metrics, Log: sampled(d.Log),
	})
	health := telemetry.Handler(d.Process, d.Metrics, telemetry.Check{Name: "store", Check: i.ready})
	server, err := httpapi.NewServer(c.HTTP, httpapi.New(c.HTTP, i.acceptor, health), d.Metrics, d.Log)
	i.server = server
	return i, err
}

// sampled keeps strangers from filling the log: of equal messages in a second, the first 20 and then every hundredth.
func sampled(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 20, 100)
	}))
}

// Handler is what the HTTP listener serves: hooks, /health, /ready and /metrics.
func (i *Ingest) Handler() http.Handler { return i.server.Handler }

// Register adds the gRPC service.
func (i *Ingest) Register(r grpc.ServiceRegistrar) {
	ingestv1.RegisterIngestServiceServer(r, grpcapi.New(i.acceptor))
}

// failedRecently is how long a failed write keeps the process from being ready.
const failedRecently = 5 * time.Second

func (i *Ingest) ready(ctx context.Context) string {
	if i.acceptor.FailedWithin(failedRecently) {
		return "write_failed"
	}
	if err := i.deps.Store.Ready(ctx); err != nil {
		return "store_unavailable"
	}
	return ""
}

// Run serves until ctx ends, or until the listener fails. Then it takes nothing more, finishes and answers what it has
// begun, has the leader acknowledge it, and returns: nil unless something was left unanswered. What no leader
// acknowledged is in the store, and the writer's flag says so.
func (i *Ingest) Run(ctx context.Context) error {
	notifying, stopNotifying := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNotifying()
	var wg sync.WaitGroup
	wg.Go(func() { _ = i.notifier.Run(notifying) }) // never fails
	wg.Go(func() { i.beat(notifying) })
	served := make(chan error, 1)
	wg.Go(func() { served <- i.server.Serve(refusal.AsJSON(i.deps.Listener)) })
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	}
	return errors.Join(serveError(failed), i.stop(ctx, func() {
		stopNotifying()
		wg.Wait()
	}))
}

// beatPeriod is well within the ten minutes after which a leader folds the counters of a silent writer.
const beatPeriod = time.Minute

// beat says now and then that the writers live, for leaders that the process cannot reach.
func (i *Ingest) beat(ctx context.Context) {
	ticker := time.NewTicker(beatPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := i.writers.beat(ctx); err != nil {
			i.deps.Log.Warn("writers' records not renewed", zap.Error(err))
		}
	}
}

// stop ends the parts in the order in which hooks pass them.
func (i *Ingest) stop(ctx context.Context, end func()) error {
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.config.DrainTimeout)
	defer cancel()
	var errs []error
	if err := i.server.Shutdown(draining); err != nil {
		errs = append(errs, fmt.Errorf("finish requests: %w", err), i.server.Close())
	}
	errs = append(errs, i.acceptor.Close(draining))
	i.drainNotifies(ctx)
	end()
	leaving, cancelLeaving := context.WithTimeout(context.WithoutCancel(ctx), notifyDrain)
	defer cancelLeaving()
	return errors.Join(append(errs, i.notifier.Leave(leaving))...)
}

// notifyDrain bounds the wait for the leader's acknowledgement at the end; the flag does for the rest.
const notifyDrain = 3 * time.Second

func (i *Ingest) drainNotifies(ctx context.Context) {
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyDrain)
	defer cancel()
	if err := i.notifier.Drain(draining); err != nil {
		i.deps.Log.Info("commits left for the leader to find", zap.Error(err))
	}
}

func serveError(err error) error {
	if err == nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve hooks: %w", err)
}
