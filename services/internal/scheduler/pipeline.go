package scheduler

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// Pressure tells how far the leader lags behind.
func (s *Scheduler) Pressure(ctx context.Context, _ *adminv1.PressureRequest) (*adminv1.PressureResponse, error) {
	t, leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	p, err := ask(ctx, t, (*core.Core).Pressure)
	if err != nil {
		return nil, err
	}
	return &adminv1.PressureResponse{LagMs: p.Lag.Milliseconds(), WindowFull: p.Full}, nil
}

// Tick waits until the leader has nothing to do.
func (s *Scheduler) Tick(ctx context.Context, _ *adminv1.TickRequest) (*adminv1.TickResponse, error) {
	t, leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	before := t.ended.Load()
	if err := t.rest(ctx); err != nil {
		return nil, err
	}
	return &adminv1.TickResponse{Settled: t.ended.Load() - before}, nil
}

// DeadLetterSource ends what a source has pending.
func (s *Scheduler) DeadLetterSource(
	ctx context.Context, req *adminv1.DeadLetterSourceRequest,
) (*adminv1.DeadLetterSourceResponse, error) {
	if _, _, ok := source.SplitID(req.GetSourceId()); !ok {
		return nil, invalidFilter("source_id")
	}
	t, leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	n, err := t.deadLetter(ctx, req.GetSourceId())
	if err != nil {
		return nil, err
	}
	return &adminv1.DeadLetterSourceResponse{DeadLettered: int64(n)}, nil
}

func invalidFilter(field string) error {
	return wire.Error(codes.InvalidArgument, "invalid_filter", map[string]string{"field": field})
}

// ask has the loop answer a question.
func ask[T any](ctx context.Context, t *term, question func(*core.Core, hook.Timestamp) T) (T, error) {
	answer := make(chan T, 1)
	select {
	case t.events <- func(c *core.Core, now hook.Timestamp) { answer <- question(c, now) }:
		return await(ctx, t, answer)
	case <-t.done:
	case <-ctx.Done():
	}
	var none T
	return none, t.left(ctx)
}

// await waits for the loop's word.
func await[T any](ctx context.Context, t *term, word <-chan T) (T, error) {
	select {
	case v := <-word:
		return v, nil
	case <-t.done:
	case <-ctx.Done():
	}
	var none T
	return none, t.left(ctx)
}

// left is why a call ends early: the term is over, or the caller's patience.
func (t *term) left(ctx context.Context) error {
	select {
	case <-t.done:
		return errNotLeading()
	default:
		return ctx.Err()
	}
}

// during is a context that ends with a call and with the term.
func (t *term) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		watch.Wait()
	}
}

// maxResting bounds the calls that wait until there is nothing to do.
const maxResting = 64

// rest returns when nothing is claimed, running or due, of what was committed before the call.
func (t *term) rest(ctx context.Context) error {
	ctx, cancel := t.during(ctx)
	defer cancel()
	var counts sync.WaitGroup // a commit may be acknowledged and its notify still be under way
	for p := range t.scheduler.deps.Store.Partitions() {
		counts.Go(func() { t.count(ctx, uint8(p)) })
	}
	counts.Wait()
	rested := make(chan struct{})
	room, err := ask(ctx, t, func(*core.Core, hook.Timestamp) bool {
		if len(t.resting) >= maxResting {
			return false
		}
		t.resting[rested] = true
		return true
	})
	if err != nil {
		return err
	}
	if !room {
		return wire.Error(codes.ResourceExhausted, "overload", nil)
	}
	if _, err := await(ctx, t, rested); err != nil {
		t.post(func(*core.Core, hook.Timestamp) { delete(t.resting, rested) })
		return err
	}
	return nil
}

// announce tells those who wait for it that there is nothing to do. It belongs to the loop.
func (t *term) announce() {
	if len(t.resting) == 0 || !t.core.Quiet() {
		return
	}
	for rested := range t.resting {
		close(rested)
	}
	clear(t.resting)
}

// order is a condemnation under way, and where its end is told.
type order struct {
	id   uint64
	done chan int
}

// deadLetter ends what a source has pending, one source at a time, and returns the number of rows.
func (t *term) deadLetter(ctx context.Context, sourceID string) (int, error) {
	ctx, cancel := t.during(ctx)
	defer cancel()
	select {
	case t.condemning <- struct{}{}:
		defer func() { <-t.condemning }()
	case <-ctx.Done():
		return 0, t.left(ctx)
	}
	o, err := t.condemnation(ctx, sourceID)
	if err != nil && ctx.Err() != nil {
		return 0, t.left(ctx)
	}
	if err != nil {
		return 0, t.scheduler.adminError("look for deliveries", err)
	}
	done := make(chan int, 1)
	begun := t.post(func(c *core.Core, now hook.Timestamp) {
		o.ID = t.order.id + 1
		t.order = order{o.ID, done}
		c.Condemned(now, o)
	})
	if !begun {
		return 0, errNotLeading()
	}
	n, err := await(ctx, t, done)
	if err != nil {
		t.post(func(c *core.Core, now hook.Timestamp) { c.Pardoned(now, t.order.id) })
	}
	return n, err
}

// condemnation says where a source has rows. What was committed before the call is among them.
func (t *term) condemnation(ctx context.Context, sourceID string) (o core.Condemnation, err error) {
	st := t.scheduler.deps.Store
	o.SourceID = sourceID
	if o.At, err = st.Now(ctx); err != nil {
		return o, err
	}
	for p := range st.Partitions() {
		err = st.Outstanding(ctx, uint8(p), func(w store.Work) {
			if w.Key.SourceID == sourceID {
				o.Places = append(o.Places, core.Place{
					Partition: w.Partition, Key: w.Key, From: w.Position, Rows: w.Rows, Ordered: w.Ordered,
				})
			}
		})
		if err != nil {
			return o, fmt.Errorf("count rows of %s: %w", sourceID, err)
		}
	}
	return o, nil
}

// purged tells who ordered a condemnation that it is carried out. It belongs to the loop.
func (t *term) purged(p core.Purged) {
	if t.order.id == p.ID {
		t.order.done <- p.Rows
	}
}
