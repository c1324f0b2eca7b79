package ferry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ankusa.dev/ferry/internal/queue"
)

// Result answers one input.
type Result[Out any] struct {
	Value Out
	Err   error
}

// Run handles one batch. It returns one result per input, in the order of the
// batch, or an error for all of them, which wins over results. The batch is
// valid until Run returns, and the results are read before the slot's next
// batch, so that either may be reused from then on. The context ends when Close
// gives up, with the cause ErrInterrupted; Run must then return soon. It carries
// no values: a batch has many callers. Up to
// MaxInFlight calls are made at once.
type Run[In, Out any] func(ctx context.Context, batch []In) ([]Result[Out], error)

// Batcher coalesces inputs into batches. Its methods may be called at any time
// from any goroutine, but Close and Do not from within run or a callback.
type Batcher[In, Out any] struct {
	config Config[In]
	run    Run[In, Out]
	ctx    context.Context // of run
	cancel context.CancelCauseFunc
	epoch  time.Time
	timed  bool // somebody wants to know the time
	calls  sync.Pool

	// forming is held by the worker that forms a batch. A channel, so that those
	// who wait for it are durably blocked in a synctest bubble.
	forming chan struct{}
	wake    chan struct{}
	timer   *time.Timer // of the worker that forms, as is:
	company bool        // the last batch had more than one input
	ended   chan struct{}

	mu      sync.Mutex // guards what follows; held for no more than chunk inputs
	queue   *queue.Queue
	closed  bool          // nobody is admitted any more
	asleep  bool          // the worker that forms waits for wake or alarm
	alarm   time.Duration // when it wakes by itself
	workers int
	lost    int // admitted, and given up
}

// New starts a batcher, which runs until Close. It fails only if the
// configuration does, with every fault at once.
func New[In, Out any](config Config[In], run Run[In, Out]) (*Batcher[In, Out], error) {
	err := config.Validate()
	if run == nil {
		err = errors.Join(err, &ConfigError{Field: "run", Problem: "is nil"})
	}
	if err != nil {
		return nil, err
	}
	b := &Batcher[In, Out]{
		config:  config,
		run:     run,
		epoch:   time.Now(),
		timed:   config.MaxWait > 0 || config.Metrics != nil,
		forming: make(chan struct{}, 1),
		wake:    make(chan struct{}, 1),
		timer:   time.NewTimer(time.Hour),
		ended:   make(chan struct{}),
		queue:   queue.New(config.limits(), config.kinds()),
		workers: config.MaxInFlight,
	}
	b.timer.Stop()
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	for range config.MaxInFlight {
		go b.work(&worker[In, Out]{})
	}
	return b, nil
}

// now is the time since New, or always 0 when nobody wants to know.
func (b *Batcher[In, Out]) now() time.Duration {
	if !b.timed {
		return 0
	}
	return time.Since(b.epoch)
}

// Do hands in over and waits for its answer: what run returned for it, the
// error for its whole batch, a *RejectedError at once, ErrClosed, or the error
// of ctx if that ends first. In the last case the input is left out of its
// batch unless it has been taken already.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (Out, error) {
	done := ctx.Done()
	if done != nil && ctx.Err() != nil {
		var zero Out
		return zero, ctx.Err()
	}
	c := b.call(in, nil)
	if err := b.admit(c); err != nil {
		b.recycle(c)
		var zero Out
		return zero, err
	}
	if done == nil {
		<-c.answered
		return b.take(c)
	}
	select {
	case <-c.answered:
		return b.take(c)
	case <-done:
		return b.leave(ctx, c)
	}
}

// Submit hands in over and returns at once: nil if it is admitted, else a
// *RejectedError or ErrClosed. If and only if it is admitted, answer is called
// exactly once with what Do would have returned. It is called by the slot that
// ran the batch, or by Close, and holds it up; it may call Submit. A panic in it
// is not recovered. A nil answer is not called.
func (b *Batcher[In, Out]) Submit(in In, answer func(Out, error)) error {
	c := b.call(in, answer)
	err := b.admit(c)
	if err != nil {
		b.recycle(c)
	}
	return err
}

// admit queues c and wakes the worker that forms if c gives it a reason.
func (b *Batcher[In, Out]) admit(c *call[In, Out]) error {
	keys, weight := b.config.keys(c.in)
	c.node.Weight = weight
	now := b.now()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.count(Refused, 1)
		return ErrClosed
	}
	bound := b.queue.Admit(&c.node, keys, now)
	wake := b.stir()
	b.mu.Unlock()
	if bound != queue.None {
		b.count(Rejected, 1)
		return rejections[bound]
	}
	b.count(Admitted, 1)
	b.count(Buffered, 1)
	if wake {
		b.rouse()
	}
	return nil
}

// stir reports whether the worker that forms sleeps although it has something
// to do, or to do earlier. The lock is held; whoever gets true must rouse.
func (b *Batcher[In, Out]) stir() bool {
	if !b.asleep || !b.queue.Due() && b.queue.Deadline() >= b.alarm {
		return false
	}
	b.asleep = false
	return true
}

func (b *Batcher[In, Out]) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// leave ends the wait of a caller whose context has ended.
func (b *Batcher[In, Out]) leave(ctx context.Context, c *call[In, Out]) (Out, error) {
	var zero Out
	now := b.now()
	b.mu.Lock()
	left := b.queue.Leave(&c.node, now)
	wake := b.asleep && b.closed && b.queue.Buffered() == 0
	b.mu.Unlock()
	if wake {
		b.rouse()
	}
	if left {
		b.count(Left, 1)
		b.count(Buffered, -1)
		b.recycle(c)
		return zero, ctx.Err()
	}
	select {
	case <-c.answered:
		return b.take(c)
	default:
		return zero, ctx.Err() // c is the worker's now
	}
}

// Stats returns what is held now.
func (b *Batcher[In, Out]) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, weight := b.queue.Held()
	buffered := b.queue.Buffered()
	return Stats{Buffered: buffered, InFlight: held - buffered, Weight: weight}
}

// Close stops admission, runs what is queued without further waiting and
// returns when all goroutines have ended: nil if every input was run. If ctx
// ends first it interrupts: run's context is cancelled, what is still queued is
// answered with ErrClosed, and the error, which matches ErrInterrupted and the
// error of ctx, says how many inputs those were. It may be called more than
// once; the first context to end interrupts for all, and those who waited get
// ErrInterrupted if inputs were given up.
func (b *Batcher[In, Out]) Close(ctx context.Context) error {
	b.drain()
	select {
	case <-b.ended:
		return b.abandoned(nil)
	case <-ctx.Done():
	}
	select {
	case <-b.ended:
		return b.abandoned(nil)
	default:
	}
	b.interrupt()
	<-b.ended
	return b.abandoned(ctx.Err())
}

// abandoned says how many inputs were not run. cause is why this call
// interrupted; nil for one that waited, which another may have interrupted for.
func (b *Batcher[In, Out]) abandoned(cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case cause != nil:
		return fmt.Errorf("close with %d inputs not run: %w: %w", b.lost, ErrInterrupted, cause)
	case b.lost > 0:
		return fmt.Errorf("close with %d inputs not run: %w", b.lost, ErrInterrupted)
	default:
		return nil
	}
}

// drain closes admission. It does so under the lock of admission, so nobody
// enters a queue that the workers or interrupt have found empty.
func (b *Batcher[In, Out]) drain() {
	b.mu.Lock()
	b.closed = true
	b.queue.Flush()
	b.asleep = false
	b.mu.Unlock()
	b.rouse()
}

// interrupt empties the closed queue, so that the workers find no more to take,
// and ends the context of what they run.
func (b *Batcher[In, Out]) interrupt() {
	now := b.now()
	b.mu.Lock()
	nodes := b.queue.Drain(now)
	b.lost += len(nodes)
	b.asleep = false
	b.mu.Unlock()
	b.cancel(ErrInterrupted)
	b.rouse()
	b.count(Abandoned, len(nodes))
	b.count(Buffered, -len(nodes))
	for _, n := range nodes {
		b.answer(n.Owner.(*call[In, Out]), Result[Out]{Err: ErrClosed})
	}
}
