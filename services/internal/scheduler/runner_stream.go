package scheduler

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// runnerConn is one runner's stream. What it is to be told gathers while the stream is busy, and goes out together.
type runnerConn struct {
	cancel context.CancelFunc
	wake   chan struct{}

	mu       sync.Mutex
	attempts []wire.Attempt
	settled  []hook.Lease
	dropped  []hook.Lease
}

// maxUntold bounds what gathers for a runner that does not listen. Its attempts are bounded by its slots, its answers by
// nothing but this: past it the runner is hung up on, and its next hello sorts things out.
const maxUntold = 1 << 16

func (r *runnerConn) tell(change func(*runnerConn)) {
	r.mu.Lock()
	change(r)
	over := len(r.settled)+len(r.dropped) > maxUntold
	r.mu.Unlock()
	if over {
		r.cancel()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// errNotLeading answers everybody who asks a scheduler that does not lead.
func errNotLeading() error { return wire.Error(codes.Unavailable, "dispatch_unavailable", nil) }

// enter returns the term that leads now, and keeps it until leave is called.
func (s *Scheduler) enter() (t *term, leave func(), err error) {
	t = s.term.Load()
	if t == nil {
		return nil, nil, errNotLeading()
	}
	if !t.streams.enter() {
		return nil, nil, errNotLeading()
	}
	return t, t.streams.leave, nil
}

// Lease serves one runner.
func (s *Scheduler) Lease(stream grpc.BidiStreamingServer[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello, err := wire.ReadHello(first.GetHello())
	if err != nil {
		return malformed(err)
	}
	t, leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if hello.HighestEpoch > t.leader.Epoch() {
		return errNotLeading()
	}
	if err := t.record(stream.Context(), &hello); err != nil {
		return err
	}
	return t.serveRunner(stream, &hello)
}

func malformed(err error) error {
	return wire.Error(codes.InvalidArgument, "malformed_message", map[string]string{"message": err.Error()})
}

// maxRunners bounds the runners that a leader knows, those that are lost and not given up yet included. Hellos that come at
// the same moment may pass it by their number, which the bound on streams bounds.
const maxRunners = 1024

// record stores the runner before it gets its first lease, so that the next leader waits for it.
func (t *term) record(ctx context.Context, h *wire.Hello) error {
	room, err := ask(ctx, t, func(c *core.Core, _ hook.Timestamp) bool { return c.RoomFor(h.Runner, maxRunners) })
	if err != nil {
		return err
	}
	if !room {
		return wire.Error(codes.ResourceExhausted, "too_many_runners", nil)
	}
	cfg := t.scheduler.cfg.Core
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = t.leader.PutRunner(ctx, store.Runner{ID: h.Runner, Name: h.Name, Longest: cfg.AttemptTimeout + cfg.LeaseMargin})
	if err != nil {
		t.log.Warn("runner not recorded", zap.String("runner", h.Name), zap.Error(err))
		return wire.Error(codes.Unavailable, "store_unavailable", nil)
	}
	return nil
}

func (t *term) serveRunner(
	stream grpc.BidiStreamingServer[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse], h *wire.Hello,
) error {
	id := h.Runner
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	conn := &runnerConn{cancel: cancel, wake: make(chan struct{}, 1)}
	welcome := &dispatchv1.Welcome{Epoch: t.leader.Epoch()}
	if err := stream.Send(&dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	if !t.post(func(c *core.Core, now hook.Timestamp) { t.join(c, now, conn, h) }) {
		return errNotLeading()
	}
	t.log.Info("runner joined", zap.String("runner", h.Name), zap.Int("slots", h.Credit.Slots))
	received := make(chan error, 1)
	go func() { received <- t.receive(stream, id, conn) }()
	sent := make(chan error, 1)
	go func() { sent <- conn.send(ctx, stream, t.scheduler.pulse()) }()
	err := t.streamEnd(ctx, received, sent)
	cancel()
	t.post(func(c *core.Core, now hook.Timestamp) { t.part(c, now, id, conn) })
	t.log.Info("runner left", zap.String("runner", h.Name), zap.Error(err))
	return err
}

// streamEnd waits until the stream is to end. Sender and receiver end with the handler's return, which ends the stream's
// context and so whatever they wait for.
func (t *term) streamEnd(ctx context.Context, received, sent chan error) error {
	select {
	case err := <-received:
		return err
	case err := <-sent:
		return err
	case <-t.done:
		return errNotLeading()
	case <-ctx.Done():
		return errNotLeading()
	}
}

// join replaces an earlier stream of the same runner.
func (t *term) join(c *core.Core, now hook.Timestamp, conn *runnerConn, h *wire.Hello) {
	if old := t.conns[h.Runner]; old != nil {
		old.cancel()
	}
	t.conns[h.Runner] = conn
	c.Joined(now, h.Runner, core.Hello{
		Types: h.SinkTypes, Credit: h.Credit, Running: h.Running, Reports: h.Unacknowledged,
	})
}

// part takes note of a stream's end, unless another has taken its place.
func (t *term) part(c *core.Core, now hook.Timestamp, id hook.RunID, conn *runnerConn) {
	if t.conns[id] != conn {
		return
	}
	delete(t.conns, id)
	c.Lost(now, id)
}

// receive reads what the runner says until the stream ends.
func (t *term) receive(
	stream grpc.BidiStreamingServer[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse], id hook.RunID, conn *runnerConn,
) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := t.said(m, id)
		if err != nil {
			return malformed(err)
		}
		current := func(c *core.Core, now hook.Timestamp) {
			if t.conns[id] == conn {
				e(c, now)
			}
		}
		if !t.post(current) {
			return errNotLeading()
		}
	}
}

func (t *term) said(m *dispatchv1.LeaseRequest, id hook.RunID) (event, error) {
	switch m := m.GetMessage().(type) {
	case *dispatchv1.LeaseRequest_Outcomes:
		list, err := wire.ReadOutcomes(m.Outcomes)
		return func(c *core.Core, now hook.Timestamp) { c.Outcomes(now, id, list) }, err
	case *dispatchv1.LeaseRequest_Credit:
		given, err := wire.ReadCredit(m.Credit)
		return func(c *core.Core, now hook.Timestamp) { c.Credit(now, id, given) }, err
	case *dispatchv1.LeaseRequest_Goodbye:
		return func(c *core.Core, now hook.Timestamp) { c.Leaving(now, id) }, nil
	default:
		return nil, errors.New("message: a second hello, or none of the known messages")
	}
}

// maxAttempts bounds the attempts in one message.
const maxAttempts = 512

// pulse is the time after which a leader that has nothing to tell says so: never to runners of its own process.
func (s *Scheduler) pulse() time.Duration {
	if s.cfg.Exclusive {
		return math.MaxInt64
	}
	return s.cfg.Renew
}

// send tells the runner what has gathered, until the stream ends. Where there is nothing to tell for as long as the
// leader takes to renew, it says that: a leader that has been stopped keeps its connections, and nothing else would tell
// a runner that it must look for another.
func (r *runnerConn) send(
	ctx context.Context, stream grpc.ServerStreamingServer[dispatchv1.LeaseResponse], pulse time.Duration,
) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			alive := &dispatchv1.LeaseResponse_Settled{Settled: &dispatchv1.Settled{}}
			if err := stream.Send(&dispatchv1.LeaseResponse{Message: alive}); err != nil {
				return err
			}
			continue
		case <-r.wake:
			runtime.Gosched() // what is told at the same time goes into the same message
		}
		ticker.Reset(pulse)
		r.mu.Lock()
		attempts, settled, dropped := r.attempts, r.settled, r.dropped
		r.attempts, r.settled, r.dropped = nil, nil, nil
		r.mu.Unlock()
		for _, m := range messages(attempts, settled, dropped) {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

func messages(attempts []wire.Attempt, settled, dropped []hook.Lease) (out []*dispatchv1.LeaseResponse) {
	if len(dropped) > 0 {
		drop := &dispatchv1.Drop{Leases: wire.LeasesProto(dropped)}
		out = append(out, &dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Drop{Drop: drop}})
	}
	for len(attempts) > 0 {
		n := min(len(attempts), maxAttempts)
		m := wire.AttemptsProto(attempts[:n])
		out = append(out, &dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Attempts{Attempts: m}})
		attempts = attempts[n:]
	}
	if len(settled) > 0 {
		m := &dispatchv1.Settled{Leases: wire.LeasesProto(settled)}
		out = append(out, &dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Settled{Settled: m}})
	}
	return out
}

// push hands leases, acknowledgements and drops to the runners' streams. What is for a runner without a stream is
// dropped: its next hello sorts it out.
func (t *term) push(e *core.Effects) {
	type told struct {
		attempts         []wire.Attempt
		settled, dropped []hook.Lease
	}
	news := make(map[hook.RunID]*told)
	of := func(id hook.RunID) *told {
		if news[id] == nil {
			news[id] = &told{}
		}
		return news[id]
	}
	for i := range e.Leases {
		to := of(e.Leases[i].Runner)
		if to.attempts == nil && len(t.conns) == 1 {
			to.attempts = make([]wire.Attempt, 0, len(e.Leases))
		}
		to.attempts = append(to.attempts, t.attempt(&e.Leases[i]))
	}
	for _, a := range e.Acks {
		to := of(a.Runner)
		to.settled = append(to.settled, a.Lease)
	}
	for _, d := range e.Drops {
		to := of(d.Runner)
		to.dropped = append(to.dropped, d.Lease)
	}
	for id, n := range news {
		if conn := t.conns[id]; conn != nil {
			conn.tell(func(r *runnerConn) {
				r.attempts = join(r.attempts, n.attempts)
				r.settled = join(r.settled, n.settled)
				r.dropped = join(r.dropped, n.dropped)
			})
		}
	}
}

// join appends b to a, and takes it over where a is empty.
func join[T any](a, b []T) []T {
	if len(a) == 0 {
		return b
	}
	return append(a, b...)
}

// onItsWay is what a lease lasts longer here than a runner is told: time for the message there, and for the outcome back.
const onItsWay = time.Second

func (t *term) attempt(l *core.Lease) wire.Attempt {
	cfg := t.scheduler.cfg.Core
	return wire.Attempt{
		Lease: l.Lease, Row: l.Delivery.Row, Number: l.Attempt,
		Timeout: cfg.AttemptTimeout, Left: cfg.AttemptTimeout + cfg.LeaseMargin - onItsWay,
		SourceRevision: l.Source.Revision, Incarnation: l.Delivery.Incarnation,
		ReplayID: l.Delivery.ReplayID, Size: uint64(l.Delivery.Size),
	}
}
