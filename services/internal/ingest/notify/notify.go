// Package notify tells the leading scheduler which rows a process has committed, until the leader has acknowledged it.
package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// Times of the protocol.
const (
	// flagAfter is how long something may stay unacknowledged before the writer raises its flag.
	flagAfter = 2 * time.Second
	// hangUpAfter is how long a stream may acknowledge nothing before it is given up.
	hangUpAfter = 15 * time.Second
	// settleAfter is when a commit of unknown fate has landed or never will: above the bound of commits.
	settleAfter = store.Finality
	// Pauses between streams, and between tries to move the flag.
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Flag is the writer's flag in the store: a store.Writer.
type Flag interface {
	RaiseFlag(ctx context.Context) error
	LowerFlag(ctx context.Context) error
}

// Notifier is safe for concurrent use. It does nothing while everything is acknowledged but keep its stream open.
type Notifier struct {
	client  dispatchv1.DispatchServiceClient
	writers []hook.RunID
	flag    Flag
	log     *zap.Logger

	mu     sync.Mutex
	ledger ledger
	hangUp context.CancelFunc // of the stream that is open
	idle   chan struct{}      // closed when everything is acknowledged, for who drains

	send  chan struct{} // there is something to send
	watch chan struct{} // there is something to watch
}

// New makes a notifier for the writers of a process, at least one, which speaks over conn to the leader. The flag is one
// writer's and stands for all.
func New(conn grpc.ClientConnInterface, writers []hook.RunID, flag Flag, r prometheus.Registerer, log *zap.Logger) *Notifier {
	n := &Notifier{
		client: dispatchv1.NewDispatchServiceClient(conn), writers: writers, flag: flag, log: log,
		ledger: newLedger(), send: make(chan struct{}, 1), watch: make(chan struct{}, 1),
	}
	n.register(r)
	return n
}

// Committed names rows that are in the store.
func (n *Notifier) Committed(groups []hook.Group) {
	n.mu.Lock()
	n.ledger.add(groups, time.Now())
	n.mu.Unlock()
	signal(n.send)
	signal(n.watch)
}

// Uncertain has the leader look for rows that a commit of unknown fate may have left, once that is decided.
func (n *Notifier) Uncertain(partition uint8, bindings []store.Binding) {
	n.mu.Lock()
	n.ledger.doubt(partition, bindings, time.Now().Add(settleAfter))
	n.mu.Unlock()
	signal(n.send)
}

// Full says that so many sinks have rows that no leader acknowledged that no more can be remembered.
func (n *Notifier) Full() bool { return n.ledger.full.Load() }

// Run keeps a stream to the leader until ctx ends, through any error. It returns nil.
func (n *Notifier) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { n.keepFlag(ctx) })
	defer wg.Wait()
	for failures := 0; ctx.Err() == nil; {
		acknowledged, err := n.stream(ctx)
		if ctx.Err() != nil {
			break
		}
		if failures++; acknowledged {
			failures = 1
		}
		n.log.Debug("notify stream ended", zap.Error(err))
		pause(ctx, failures)
	}
	return nil
}

// Drain waits until everything is acknowledged, or until ctx ends and fails then.
func (n *Notifier) Drain(ctx context.Context) error {
	idle := make(chan struct{})
	n.mu.Lock()
	if n.ledger.empty() {
		close(idle)
	} else {
		n.idle = idle
	}
	n.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain notifies: %w", context.Cause(ctx))
	}
}

// Leave is for the end, after Run: where the leader has not acknowledged everything, or a commit of unknown fate may yet
// land, it raises the flag, so that a leader looks for the rest.
func (n *Notifier) Leave(ctx context.Context) error {
	n.mu.Lock()
	done := n.ledger.empty() && len(n.ledger.doubts) == 0
	n.mu.Unlock()
	if done {
		return nil
	}
	if err := n.flag.RaiseFlag(ctx); err != nil {
		return fmt.Errorf("leave commits to the leader: %w", err)
	}
	return nil
}

// stream runs one stream to its end: hello, what was sent before and is not acknowledged, then what comes. It says
// whether the leader acknowledged anything.
func (n *Notifier) stream(ctx context.Context) (acknowledged bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	n.hangUp = cancel
	n.mu.Unlock()
	s, err := n.client.Notify(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	received := make(chan error, 1)
	go func() {
		defer cancel()
		received <- n.receive(s, &acknowledged)
	}()
	err = n.speak(ctx, s)
	cancel()
	err = errors.Join(err, <-received)
	return acknowledged, err
}

type stream = grpc.BidiStreamingClient[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]

func (n *Notifier) receive(s stream, acknowledged *bool) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		*acknowledged = true
		n.acknowledge(m.GetAcknowledged())
	}
}

func (n *Notifier) acknowledge(sequence uint64) {
	n.mu.Lock()
	n.ledger.acknowledge(sequence)
	if n.ledger.empty() && n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
	n.mu.Unlock()
	signal(n.watch)
	signal(n.send) // room for another message
}

func (n *Notifier) speak(ctx context.Context, s stream) error {
	hello := &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: wire.WriterHelloProto(n.writers)}}
	if err := s.Send(hello); err != nil {
		return sendError(err)
	}
	n.mu.Lock()
	again := n.ledger.unacknowledged()
	n.mu.Unlock()
	for _, m := range again {
		if err := s.Send(m); err != nil {
			return sendError(err)
		}
	}
	for {
		n.mu.Lock()
		m, wait := n.ledger.next(time.Now())
		n.mu.Unlock()
		if m != nil {
			if err := s.Send(m); err != nil {
				return sendError(err)
			}
			continue
		}
		if !await(ctx, n.send, wait) {
			return ctx.Err()
		}
	}
}

// sendError drops the io.EOF that only says that the error is with the receiver.
func sendError(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// watcher is what keepFlag knows.
type watcher struct {
	raised, hung time.Time // zero for no
	failures     int
}

// keepFlag raises the writer's flag while something stays unacknowledged for too long, hangs up on a stream that
// acknowledges nothing, and lowers the flag when all that was late is acknowledged.
func (n *Notifier) keepFlag(ctx context.Context) {
	var w watcher
	for ctx.Err() == nil {
		now := time.Now()
		n.mu.Lock()
		oldest, owed := n.ledger.oldest(now)
		n.mu.Unlock()
		if err := n.move(ctx, &w, oldest, owed, now); err != nil {
			w.failures++
			n.log.Warn("writer flag not moved", zap.Error(err))
			pause(ctx, w.failures)
			continue
		}
		w.failures = 0
		if owed && now.Sub(oldest) >= hangUpAfter && now.Sub(w.hung) >= hangUpAfter {
			w.hung = now
			n.hang()
		}
		await(ctx, n.watch, w.nextLook(oldest, owed, now))
	}
}

func (n *Notifier) move(ctx context.Context, w *watcher, oldest time.Time, owed bool, now time.Time) error {
	switch {
	case owed && w.raised.IsZero() && now.Sub(oldest) >= flagAfter:
		if err := n.flag.RaiseFlag(ctx); err != nil {
			return err
		}
		w.raised = now
		n.log.Warn("no leader acknowledges commits: flag raised")
	case !w.raised.IsZero() && (!owed || oldest.After(w.raised)):
		if err := n.flag.LowerFlag(ctx); err != nil {
			return err
		}
		w.raised = time.Time{}
		n.log.Info("leader acknowledges commits again: flag lowered")
	}
	return nil
}

// nextLook is how long nothing changes by time alone; 0 for ever.
func (w *watcher) nextLook(oldest time.Time, owed bool, now time.Time) time.Duration {
	switch {
	case !owed:
		return 0
	case w.raised.IsZero():
		return max(flagAfter-now.Sub(oldest), time.Millisecond)
	default:
		return hangUpAfter
	}
}

func (n *Notifier) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hangUp != nil {
		n.hangUp()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits for a signal, or for d where that is positive; false when ctx has ended.
func await(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-c:
	case <-timer:
	case <-ctx.Done():
		return false
	}
	return ctx.Err() == nil
}

func pause(ctx context.Context, failures int) {
	ceiling := min(minPause<<min(failures, 10), maxPause)
	await(ctx, nil, ceiling/2+rand.N(ceiling/2))
}
