// Package stage sets a real scheduler up on a store, with runners on its lease stream that answer at once.
package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/rpc"
	"ankusa.dev/services/internal/scheduler"
	"ankusa.dev/services/internal/store"
)

// Stage is one scheduler, served over gRPC within the process: with its framing and encoding, as between processes, which the
// one-process binary does without.
type Stage struct {
	Store *store.Store

	cfg      scheduler.Config
	log      *zap.Logger
	port     kv.Store
	tally    *tally
	registry *prometheus.Registry
	unserve  context.CancelFunc
	served   chan error
	conn     *grpc.ClientConn
	stop     context.CancelFunc
	ended    chan error
}

// Open opens the store on a port, which the stage owns from here on, and serves a scheduler that does not stand for
// election yet.
func Open(ctx context.Context, port kv.Store, cfg scheduler.Config, log *zap.Logger) (*Stage, error) {
	s := &Stage{cfg: cfg, log: log, registry: prometheus.NewRegistry(), served: make(chan error, 1)}
	s.tally, s.port = newTally(port)
	var err error
	if s.Store, err = store.Open(ctx, s.port, store.Options{}); err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return s, nil
}

// Lead starts the scheduler, and a client for its runners. It returns before the scheduler leads.
func (s *Stage) Lead() error {
	known := health.NewServer()
	sch, err := scheduler.New(s.cfg, scheduler.Deps{Store: s.Store, Log: s.log, Metrics: s.registry, Health: known})
	if err != nil {
		return err
	}
	server := rpc.NewServer(rpc.ServerOptions{Log: s.log, Health: known})
	sch.Register(server)
	pipe := rpc.NewPipe()
	serving, unserve := context.WithCancel(context.Background())
	s.unserve = unserve
	go func() { s.served <- rpc.Serve("dispatch", server, pipe, 0).Run(serving) }()
	if s.conn, err = pipe.Dial(dispatchv1.DispatchService_ServiceDesc.ServiceName); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- sch.Run(ctx) }()
	return nil
}

// Port is the store port that the calls are counted on.
func (s *Stage) Port() kv.Store { return s.port }

// Counts are the calls through the store port so far.
func (s *Stage) Counts() Counts { return s.tally.Counts() }

// Gauge reads one of the scheduler's metrics without labels; it is 0 as long as nobody has set it.
func (s *Stage) Gauge(name string) (float64, error) {
	families, err := s.registry.Gather()
	if err != nil {
		return 0, fmt.Errorf("gather metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) > 0 {
			return f.GetMetric()[0].GetGauge().GetValue(), nil
		}
	}
	return 0, fmt.Errorf("no metric is called %s", name)
}

// look is how often a state of the scheduler is looked at.
const look = 2 * time.Millisecond

// Reaches waits until a metric satisfies a condition.
func (s *Stage) Reaches(ctx context.Context, name string, is func(float64) bool) error {
	return s.until(ctx, name, func() (bool, error) {
		v, err := s.Gauge(name)
		return is(v), err
	})
}

// Settles waits until the scheduler has called its store for nothing but its lease for a while: all that it had to read
// is read.
func (s *Stage) Settles(ctx context.Context, quiet time.Duration) error {
	last, since := -1, time.Now()
	return s.until(ctx, "a quiet store", func() (bool, error) {
		counts := s.Counts()
		if n := counts.All() - counts.Calls["lease"] - counts.Calls["writer"]; n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) >= quiet, nil
	})
}

func (s *Stage) until(ctx context.Context, what string, is func() (bool, error)) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}

// Close ends the scheduler and closes the store.
func (s *Stage) Close() error {
	var errs []error
	if s.ended != nil {
		s.stop()
		errs = append(errs, <-s.ended)
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.unserve != nil {
		s.unserve()
		errs = append(errs, <-s.served)
	}
	return errors.Join(append(errs, s.port.Close())...)
}
