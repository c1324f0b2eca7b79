package sinkrunner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/wire"
)

// A runner with more unacknowledged outcomes than behind asks for no more attempts; one that holds more than overrun in
// all leaves a leader that sends them nevertheless.
func behind(slots int) int  { return 2*slots + 64 }
func overrun(slots int) int { return 4*slots + 1024 }

// maxWhole is how many outcomes a hello carries with the destinations' answers; more go without, so that a hello fits
// one message.
const maxWhole = 1024

var (
	errOverrun = errors.New("the leader leases more than the credit")
	// errDropped and errCut are the causes of an attempt's end before its time.
	errDropped = errors.New("lease taken back")
	errCut     = errors.New("runner stopped")
)

// lease is one attempt that this runner has accepted.
type lease struct {
	wire.Attempt
	// ctx is what the attempt runs in: it ends with the lease, with errTimeout as its cause at the deadline.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout *time.Timer
	limit   time.Duration // from its arrival on: the attempt's time-out, or what was left of the lease
	arrived time.Time
}

// newLease opens a lease's time.
func newLease(a *wire.Attempt) *lease {
	l := &lease{Attempt: *a, limit: min(a.Timeout, a.Left), arrived: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.timeout = time.AfterFunc(l.limit, func() { l.cancel(errTimeout) })
	return l
}

func (l *lease) deadline() time.Time { return l.arrived.Add(l.limit) }

// close frees what the lease holds. Its context has ended then, if only by that.
func (l *lease) close() {
	l.timeout.Stop()
	l.cancel(nil)
}

// end is an outcome that no leader has acknowledged.
type end struct {
	report hook.Report
	number uint64 // in the order of the ends
}

// book is everything that a runner holds: leases that run, and outcomes until they are acknowledged. The number of both
// is bounded by the credit. It is safe for concurrent use.
type book struct {
	slots int
	// wake has a token whenever there may be something to send.
	wake chan struct{}

	mu       sync.Mutex
	running  map[hook.Lease]*lease
	working  int // attempts that were admitted and are not done, those of dropped leases included
	ended    map[hook.Lease]end
	outbox   []hook.Lease // ended, and not sent on the stream that is open
	ends     uint64
	epoch    uint64 // the highest seen
	draining bool
	changed  chan struct{} // closed when a lease, an outcome or an attempt is gone while draining
}

func newBook(slots int) *book {
	return &book{
		slots: slots, wake: make(chan struct{}, 1), changed: make(chan struct{}),
		running: map[hook.Lease]*lease{}, ended: map[hook.Lease]end{},
	}
}

func (b *book) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// admit takes a lease that is new, of the given epoch, and within the slots. The others are answered here: one that is
// known already is ignored, one for which there is no room was not started. The caller says when the attempt is done.
func (b *book) admit(a *wire.Attempt) (*lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.running)+len(b.ended) > overrun(b.slots) {
		return nil, errOverrun
	}
	_, runs := b.running[a.Lease]
	_, ended := b.ended[a.Lease]
	if runs || ended || a.Lease.Epoch < b.epoch {
		return nil, nil
	}
	l := newLease(a)
	if b.draining || len(b.running) >= b.slots {
		l.close()
		reason := "no slot"
		if b.draining {
			reason = "runner stopping"
		}
		b.end(l, hook.Outcome{Class: hook.NotStarted, Reason: reason})
		return nil, nil
	}
	b.running[a.Lease] = l
	b.working++
	return l, nil
}

// done ends the work on a lease that was admitted, whatever became of it.
func (b *book) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.working--
	b.tell()
}

// finish ends a lease with its outcome. It answers false, and the outcome is nobody's, when the lease was dropped.
func (b *book) finish(l *lease, o hook.Outcome) bool {
	l.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[l.Lease] != l {
		return false
	}
	delete(b.running, l.Lease)
	b.end(l, o)
	b.tell()
	return true
}

func (b *book) end(l *lease, o hook.Outcome) {
	b.ends++
	report := hook.Report{Lease: l.Lease, Row: l.Row, Attempt: l.Number, Outcome: o}
	b.ended[l.Lease] = end{report: report, number: b.ends}
	b.outbox = append(b.outbox, l.Lease)
	b.rouse()
}

// tell is called whenever something is gone.
func (b *book) tell() {
	if b.draining {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// settle forgets outcomes that stand in the store: none where a leader only says that it lives.
func (b *book) settle(leases []hook.Lease) {
	if len(leases) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.credit()
	for _, l := range leases {
		delete(b.ended, l)
	}
	if b.credit() != before {
		b.rouse()
	}
	b.tell()
}

// drop forgets leases that are not this runner's any more, with their outcomes, and cancels those that run.
func (b *book) drop(leases []hook.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range leases {
		if runs := b.running[l]; runs != nil {
			runs.cancel(errDropped)
		}
		delete(b.running, l)
		delete(b.ended, l)
	}
	b.rouse()
	b.tell()
}

// forget drops one lease of a deposed leader.
func (b *book) forget(l *lease, epoch uint64) {
	b.observe(epoch)
	b.drop([]hook.Lease{l.Lease})
}

// observe takes note of an epoch and answers the highest one seen.
func (b *book) observe(epoch uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch > b.epoch {
		b.epoch = epoch
		b.rouse()
	}
	return b.epoch
}

// hello is what a new leader has to know. All outcomes are in it, so that none waits to be sent any more.
func (b *book) hello(h wire.Hello, now time.Time) wire.Hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outbox = b.outbox[:0]
	h.Credit, h.HighestEpoch = b.credit(), b.epoch
	for _, l := range b.running {
		h.Running = append(h.Running, hook.Running{
			Lease: l.Lease, Row: l.Row, Attempt: l.Number, Left: max(0, l.deadline().Sub(now)),
		})
	}
	ends := make([]end, 0, len(b.ended))
	for _, e := range b.ended {
		ends = append(ends, e)
	}
	slices.SortFunc(ends, func(x, y end) int { return int(x.number) - int(y.number) })
	for _, e := range ends {
		if len(ends) > maxWhole {
			e.report.Outcome.Response = nil
		}
		h.Unacknowledged = append(h.Unacknowledged, e.report)
	}
	return h
}

// news is what there is to say to the leader.
type news struct {
	reports  []hook.Report
	credit   hook.Credit
	draining bool
	epoch    uint64
}

// take empties the outbox, at most limit reports of it.
func (b *book) take(limit int) news {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := news{credit: b.credit(), draining: b.draining, epoch: b.epoch}
	taken := b.outbox[:min(len(b.outbox), limit)]
	n.reports = make([]hook.Report, 0, len(taken))
	for _, l := range taken {
		if e, held := b.ended[l]; held {
			n.reports = append(n.reports, e.report)
		}
	}
	b.outbox = append(b.outbox[:0], b.outbox[len(taken):]...)
	if len(b.outbox) > 0 {
		b.rouse()
	}
	return n
}

// credit is nothing while the leader is far behind with its acknowledgements.
func (b *book) credit() hook.Credit {
	if b.draining || len(b.ended) > behind(b.slots) {
		return hook.Credit{}
	}
	return hook.Credit{Slots: b.slots}
}

func (b *book) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	b.rouse()
}

// cut ends what still runs.
func (b *book) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.running {
		l.cancel(errCut)
	}
}

// await returns when a condition on the book holds, or the context has ended. It is told of changes while draining.
func (b *book) await(ctx context.Context, holds func(*book) bool) {
	for {
		b.mu.Lock()
		done, changed := holds(b), b.changed
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (b *book) counts() (running, unacknowledged int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.running), len(b.ended)
}
