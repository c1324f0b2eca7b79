package sinkrunner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/wire"
)

const (
	// partingTime bounds the wait for the leader's last word.
	partingTime = 2 * time.Second
	// maxReports bounds the outcomes in one message.
	maxReports = 512
)

var (
	errDeposed = errors.New("leader is deposed")
	errWelcome = errors.New("no welcome")
	errSilent  = errors.New("leader is silent")
	errParted  = errors.New("runner has ended")
)

type stream = grpc.BidiStreamingClient[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse]

// session is one stream's life: hello, welcome, then both directions at once until one of them fails, or done is closed
// and the leader has closed its side.
func (r *Runner) session(ctx context.Context, done <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	release := unlessSoon(done, func() { cancel(errParted) }) // a stream that still waits for a leader is given up
	defer release()
	s, err := r.client.Lease(ctx, options()...)
	if err != nil {
		return fmt.Errorf("open stream: %w", cause(ctx, err))
	}
	hello := r.book.hello(wire.Hello{
		Runner: r.id, Name: r.config.Name, SinkTypes: slices.Sorted(maps.Keys(r.deps.Sinks)),
	}, time.Now())
	if err := s.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: hello.Proto()}}); err != nil {
		return fmt.Errorf("say hello: %w", cause(ctx, err))
	}
	epoch, err := r.welcome(s, cancel)
	if err != nil {
		return fmt.Errorf("await welcome: %w", cause(ctx, err))
	}
	r.connected.Store(true)
	defer r.connected.Store(false)
	r.log.Info("leader found", zap.Uint64("epoch", epoch))
	r.book.rouse() // what came since the hello was written
	var sender sync.WaitGroup
	sender.Go(func() { cancelOn(cancel, r.send(ctx, s, epoch, hello.Credit, done)) })
	err = r.receive(s, epoch, cancel)
	cancel(err)
	sender.Wait()
	return cause(ctx, err)
}

// unlessSoon calls f partingTime after done is closed, unless it is released before.
func unlessSoon(done <-chan struct{}, f func()) (release func()) {
	released := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-done:
		case <-released:
			return
		}
		select {
		case <-time.After(partingTime):
			f()
		case <-released:
		}
	})
	return func() { close(released); watch.Wait() }
}

// cause prefers why this side ended the stream to what the stream says about it.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

func cancelOn(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(err)
	}
}

func (r *Runner) welcome(s stream, cancel context.CancelCauseFunc) (epoch uint64, err error) {
	timer := time.AfterFunc(r.config.silence(), func() { cancel(errWelcome) })
	m, err := s.Recv()
	if !timer.Stop() || err != nil {
		return 0, errors.Join(errWelcome, err)
	}
	if m.GetWelcome() == nil {
		return 0, errWelcome
	}
	epoch = m.GetWelcome().GetEpoch()
	if r.book.observe(epoch) > epoch {
		return 0, errDeposed
	}
	return epoch, nil
}

// send says what there is to say whenever the stream is free: outcomes that have gathered, a changed credit, goodbye.
// It returns nil once it has closed its side.
func (r *Runner) send(ctx context.Context, s stream, epoch uint64, credit hook.Credit, done <-chan struct{}) error {
	for parting := false; ; {
		ending := false
		select {
		case <-ctx.Done():
			return nil
		case <-done:
			ending = true
		case <-r.book.wake:
			runtime.Gosched() // what ends at the same time goes into the same message
		}
		n := r.book.take(maxReports)
		if n.epoch > epoch {
			return errDeposed
		}
		for _, m := range messages(n, credit, parting) {
			if err := s.Send(m); err != nil {
				return fmt.Errorf("send: %w", err)
			}
		}
		if ending {
			return s.CloseSend()
		}
		credit, parting = n.credit, n.draining
	}
}

func messages(n news, credit hook.Credit, parting bool) (list []*dispatchv1.LeaseRequest) {
	if len(n.reports) > 0 {
		outcomes := &dispatchv1.Outcomes{Outcomes: wire.ReportsProto(n.reports)}
		list = append(list, &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Outcomes{Outcomes: outcomes}})
	}
	switch {
	case n.draining && !parting:
		goodbye := &dispatchv1.LeaseRequest_Goodbye{Goodbye: &dispatchv1.Goodbye{}}
		list = append(list, &dispatchv1.LeaseRequest{Message: goodbye})
	case n.credit != credit:
		list = append(list, &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Credit{Credit: wire.CreditProto(n.credit)}})
	}
	return list
}

// receive acts on what the leader says until the stream ends, or the leader is silent for too long.
func (r *Runner) receive(s stream, epoch uint64, cancel context.CancelCauseFunc) error {
	silence := time.AfterFunc(r.config.silence(), func() { cancel(errSilent) })
	defer silence.Stop()
	for {
		m, err := s.Recv()
		silence.Reset(r.config.silence())
		if errors.Is(err, io.EOF) {
			return errors.New("the leader ended the stream")
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch m := m.GetMessage().(type) {
		case *dispatchv1.LeaseResponse_Attempts:
			err = r.leased(m.Attempts, epoch)
		case *dispatchv1.LeaseResponse_Settled:
			r.book.settle(wire.ReadLeases(m.Settled.GetLeases()))
		case *dispatchv1.LeaseResponse_Drop:
			r.book.drop(wire.ReadLeases(m.Drop.GetLeases()))
		default:
			err = fmt.Errorf("%w: unknown message", wire.ErrMalformed)
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
}

func (r *Runner) leased(p *dispatchv1.Attempts, epoch uint64) error {
	attempts, err := wire.ReadAttempts(p)
	if err != nil {
		return err
	}
	admitted := make([]*lease, 0, len(attempts))
	defer func() { r.start(admitted) }() // those before a malformed one are this runner's
	for i := range attempts {
		if attempts[i].Lease.Epoch != epoch {
			return fmt.Errorf("%w: an attempt of another epoch", wire.ErrMalformed)
		}
		l, err := r.book.admit(&attempts[i])
		if err != nil {
			return err
		}
		if l != nil {
			admitted = append(admitted, l)
		}
	}
	return nil
}
