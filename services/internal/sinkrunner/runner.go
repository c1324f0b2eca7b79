package sinkrunner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/ferry"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/workers"
)

// Runner runs attempts for whichever scheduler leads. Use New, and Run once.
type Runner struct {
	config  Config
	deps    Deps
	log     *zap.Logger
	metrics *metrics
	id      hook.RunID
	// connected says whether a leader has welcomed the stream that is open.
	connected atomic.Bool
	client    dispatchv1.DispatchServiceClient
	book      *book
	reads     *ferry.Batcher[[]*lease, []found]
	workers   *workers.Workers[job]
}

// New makes a runner and registers its metrics. Until Run is called it does nothing.
func New(c Config, d Deps) (*Runner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(d.Sinks) == 0 {
		return nil, errors.New("sink-runner: no sinks")
	}
	r := &Runner{
		config: c, deps: d, log: d.Log.Named("runner"),
		client: dispatchv1.NewDispatchServiceClient(d.Leader), book: newBook(c.Slots),
	}
	r.workers = workers.New(c.Slots, func(j job) { r.attempt(j.lease, j.found) })
	_, _ = rand.Read(r.id[:]) // never fails
	r.metrics = newMetrics(slices.Collect(maps.Keys(d.Sinks)))
	if err := r.metrics.register(d.Metrics, r.book, r.streams); err != nil {
		return nil, fmt.Errorf("sink-runner: %w", err)
	}
	return r, nil
}

// Run leases and runs attempts until the context ends; no failure of the leader, the store or a sink ends it. Then it
// takes no more, lets what runs end within Drain, reports it, waits for the acknowledgements within Acknowledge, closes
// the sinks, and returns nil when no goroutine of it is left.
func (r *Runner) Run(ctx context.Context) (err error) {
	reads := ferry.Default[[]*lease]()
	reads.MaxInFlight, reads.MaxQueue = readers, max(reads.MaxQueue, r.config.Slots)
	reads.MaxBatchWeight, reads.Weight = maxRows, func(leases []*lease) int64 { return int64(len(leases)) }
	if r.reads, err = ferry.New(reads, r.fetch); err != nil {
		return fmt.Errorf("sink-runner: %w", err)
	}
	defer r.deps.Sinks.Close()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	done := make(chan struct{})
	var streams sync.WaitGroup
	streams.Go(func() { r.stay(work, done) })
	<-ctx.Done()
	r.finish()
	close(done)
	streams.Wait()
	stop()
	return nil
}

func (r *Runner) streams() int {
	if r.connected.Load() {
		return 1
	}
	return 0
}

// ErrNotConnected: no leader serves this runner now.
var ErrNotConnected = errors.New("no stream to the leading scheduler")

// Ready fails with ErrNotConnected while the runner has no leader to lease from.
func (r *Runner) Ready(context.Context) error {
	if !r.connected.Load() {
		return ErrNotConnected
	}
	return nil
}

// finish ends the runner's work in order.
func (r *Runner) finish() {
	r.book.drain()
	background := context.Background()
	r.within(background, r.config.Drain, func(b *book) bool { return len(b.running) == 0 })
	r.book.cut()
	_ = r.reads.Close(background) // what is queued is read, and answered by its cut
	r.book.await(background, func(b *book) bool { return b.working == 0 })
	r.workers.Close()
	r.within(background, r.config.Acknowledge, func(b *book) bool { return len(b.ended) == 0 })
	if _, left := r.book.counts(); left > 0 {
		r.log.Warn("outcomes left unacknowledged", zap.Int("outcomes", left))
	}
}

func (r *Runner) within(ctx context.Context, d time.Duration, holds func(*book) bool) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	r.book.await(ctx, holds)
}

// stay keeps a stream to the leader open until done is closed and the last stream has said so.
func (r *Runner) stay(ctx context.Context, done <-chan struct{}) {
	pause := backoff{}
	for {
		began := time.Now()
		err := r.session(ctx, done)
		select {
		case <-done:
			return
		default:
		}
		if time.Since(began) > steady {
			pause = backoff{}
		}
		wait := pause.next()
		r.log.Info("stream to the leader ended", zap.Error(err), zap.Duration("again_in", wait))
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
	}
}

// options of the stream: it waits for a leader instead of failing while there is none.
func options() []grpc.CallOption { return []grpc.CallOption{grpc.WaitForReady(true)} }
