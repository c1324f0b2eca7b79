package stage

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
)

// Lap is where a crew stood at a moment.
type Lap struct {
	// Taken attempts; Unordered is those among them that are of no lane.
	Taken, Unordered int
	// Settled attempts: their outcome stands in the store.
	Settled int
	At      time.Time
	// CPU that the process has used so far.
	CPU time.Duration
}

// Rate is settled rows per second since an earlier lap.
func (l Lap) Rate(since Lap) float64 {
	return float64(l.Settled-since.Settled) / l.At.Sub(since.At).Seconds()
}

// Cost is microseconds of processor time per settled row since an earlier lap.
func (l Lap) Cost(since Lap) float64 {
	return float64(l.CPU-since.CPU) / float64(time.Microsecond) / float64(l.Settled-since.Settled)
}

// Crew is some runners that answer every attempt at once and with the same outcome, without reading its hook.
type Crew struct {
	class dispatchv1.Class
	stop  context.CancelFunc
	all   sync.WaitGroup
	hands []*hand

	mu     sync.Mutex
	lap    Lap // but for its time
	marks  []mark
	failed error
}

// mark is a lap that somebody waits for.
type mark struct {
	reached func(Lap) bool
	lap     chan Lap
}

// CrewOptions say what a crew is.
type CrewOptions struct {
	Runners, Slots int // Slots are each runner's
	// Class of every outcome.
	Class dispatchv1.Class
	// Held runners keep their answers back until they are released.
	Held bool
}

// Hire connects runners to the scheduler, as soon as it leads. The caller closes the crew before the stage.
func (s *Stage) Hire(ctx context.Context, o CrewOptions) (*Crew, error) {
	streams, stop := context.WithCancel(context.Background())
	c := &Crew{class: o.Class, stop: stop}
	for i := range o.Runners {
		h := &hand{crew: c, held: o.Held}
		if err := h.connect(ctx, streams, s.conn, fmt.Sprintf("runner-%d", i), uint32(o.Slots)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.hands = append(c.hands, h)
		c.all.Go(func() { c.fail(h.work()) })
	}
	return c, nil
}

// Close ends the runners' streams and says what went wrong with them before.
func (c *Crew) Close() error {
	c.mu.Lock()
	err := c.failed
	c.mu.Unlock()
	c.stop()
	c.all.Wait()
	return err
}

// Hold keeps answers back from here on.
func (c *Crew) Hold() {
	for _, h := range c.hands {
		h.hold()
	}
}

// Release gives the answers that were kept back.
func (c *Crew) Release() error {
	var errs []error
	for _, h := range c.hands {
		errs = append(errs, h.release())
	}
	return errors.Join(errs...)
}

// Now is where the crew stands.
func (c *Crew) Now() Lap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Crew) now() Lap {
	lap := c.lap
	lap.At, lap.CPU = time.Now(), cpu()
	return lap
}

// cpu is the processor time of the process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it cannot fail for a process itself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Settled returns the moment at which n rows were settled, in all.
func (c *Crew) Settled(ctx context.Context, n int) (Lap, error) {
	return c.Until(ctx, func(l Lap) bool { return l.Settled >= n })
}

// Until returns the first moment that satisfies a condition, which does not look at times.
func (c *Crew) Until(ctx context.Context, reached func(Lap) bool) (Lap, error) {
	m := mark{reached, make(chan Lap, 1)}
	c.mu.Lock()
	c.marks = append(c.marks, m)
	c.pass()
	c.mu.Unlock()
	select {
	case lap, ok := <-m.lap:
		if !ok {
			return Lap{}, fmt.Errorf("runner: %w", c.failed)
		}
		return lap, nil
	case <-ctx.Done():
		lap := c.Now()
		return lap, fmt.Errorf("at %d attempts taken and %d settled: %w", lap.Taken, lap.Settled, ctx.Err())
	}
}

func (c *Crew) took(attempts []*dispatchv1.Attempt) {
	unordered := 0
	for _, a := range attempts {
		if !a.GetRow().GetOrdered() {
			unordered++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lap.Taken += len(attempts)
	c.lap.Unordered += unordered
	c.pass()
}

func (c *Crew) settled(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lap.Settled += n
	c.pass()
}

// pass tells those whose mark is reached. c.mu is held.
func (c *Crew) pass() {
	left := c.marks[:0]
	for _, m := range c.marks {
		switch {
		case m.reached(c.lap):
			m.lap <- c.now()
		case c.failed != nil:
			close(m.lap)
		default:
			left = append(left, m)
		}
	}
	c.marks = left
}

func (c *Crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	c.pass()
}

// hand is one runner.
type hand struct {
	crew   *Crew
	stream grpc.BidiStreamingClient[dispatchv1.LeaseRequest, dispatchv1.LeaseResponse]

	mu   sync.Mutex // also orders the sends
	held bool
	kept []*dispatchv1.Outcome
}

// maxWait bounds the wait for a scheduler that leads.
const maxWait = time.Minute

func (h *hand) connect(ctx, streams context.Context, conn *grpc.ClientConn, name string, slots uint32) error {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	var err error
	// A stream lives as long as its context, so that the wait for its begin needs a guard of its own.
	streams, drop := context.WithCancel(streams)
	guard := context.AfterFunc(ctx, drop)
	if h.stream, err = dispatchv1.NewDispatchServiceClient(conn).Lease(streams, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("connect %s: %w", name, err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	hello := &dispatchv1.Hello{
		RunnerId: id, Name: name, SinkTypes: []string{"log"}, Credit: &dispatchv1.Credit{Slots: slots},
	}
	if err := h.stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("connect %s: %w", name, err)
	}
	m, err := h.stream.Recv()
	if err != nil {
		return fmt.Errorf("connect %s: %w", name, err)
	}
	if m.GetWelcome() == nil || !guard() {
		return fmt.Errorf("connect %s: no welcome", name)
	}
	return nil
}

// errDropped: the leader took leases back, which nobody gave it reason to.
var errDropped = errors.New("leases were taken back")

func (h *hand) work() error {
	for {
		m, err := h.stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *dispatchv1.LeaseResponse_Attempts:
			h.crew.took(m.Attempts.GetAttempts())
			if err := h.answer(m.Attempts.GetAttempts()); err != nil {
				return err
			}
		case *dispatchv1.LeaseResponse_Settled:
			h.crew.settled(len(m.Settled.GetLeases()))
		case *dispatchv1.LeaseResponse_Drop:
			return errDropped
		}
	}
}

// answer reports the outcomes of attempts, or keeps them.
func (h *hand) answer(attempts []*dispatchv1.Attempt) error {
	outcomes := h.crew.outcomes(attempts)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		h.kept = append(h.kept, outcomes...)
		return nil
	}
	return h.send(outcomes)
}

func (c *Crew) outcomes(attempts []*dispatchv1.Attempt) []*dispatchv1.Outcome {
	slab, out := make([]dispatchv1.Outcome, len(attempts)), make([]*dispatchv1.Outcome, len(attempts))
	took := durationpb.New(time.Millisecond)
	for i, a := range attempts {
		o := &slab[i]
		o.Epoch, o.LeaseId, o.Row, o.Attempt = a.GetEpoch(), a.GetLeaseId(), a.GetRow(), a.GetAttempt()
		o.Class, o.Duration = c.class, took
		out[i] = o
	}
	return out
}

func (h *hand) send(outcomes []*dispatchv1.Outcome) error {
	m := &dispatchv1.LeaseRequest_Outcomes{Outcomes: &dispatchv1.Outcomes{Outcomes: outcomes}}
	return h.stream.Send(&dispatchv1.LeaseRequest{Message: m})
}

func (h *hand) hold() {
	h.mu.Lock()
	h.held = true
	h.mu.Unlock()
}

func (h *hand) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.kept
	h.held, h.kept = false, nil
	if len(kept) == 0 {
		return nil
	}
	return h.send(kept)
}
