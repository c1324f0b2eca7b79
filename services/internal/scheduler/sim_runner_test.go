package scheduler

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// simRunner behaves as a sink-runner does: it keeps outcomes until they are settled, and leases until they are over. When
// it crashes it forgets both, and comes back as another. Its time is that of the synctest bubble.
type simRunner struct {
	*faulty
	rnd   *rand.Rand
	store *store.Store

	mu      sync.Mutex
	id      hook.RunID
	epoch   uint64
	stream  dispatchv1.DispatchService_LeaseClient
	running map[hook.Lease]*simAttempt
	unacked map[hook.Lease]hook.Report
}

// simAttempt is a lease until its outcome is known, the runner forgets it or it is taken back.
type simAttempt struct {
	wire.Attempt
	deadline time.Time
}

// credited is what every runner takes.
var credited = hook.Credit{Slots: 20, Rows: 30, Bytes: 1 << 20}

func (f *faulty) runRunner(ctx context.Context, who uint64) {
	st, _ := f.faultyStore(who)
	r := &simRunner{faulty: f, rnd: f.random(who), store: st}
	r.begin()
	for ctx.Err() == nil {
		for _, n := range f.nodes {
			_ = r.serve(ctx, n.node)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// begin is the start of the process, the first or another.
func (r *simRunner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id, r.epoch = identity(r.rnd), 0
	r.running, r.unacked = map[hook.Lease]*simAttempt{}, map[hook.Lease]hook.Report{}
}

var (
	errOldLeader = errors.New("leader of an earlier epoch")
	errBroken    = errors.New("stream broken")
)

func (r *simRunner) serve(ctx context.Context, n *node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Lease(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: r.hello().Proto()}}); err != nil {
		return err
	}
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	if !r.welcomed(m.GetWelcome().GetEpoch(), stream) {
		return errOldLeader
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.breaks() {
			return errBroken
		}
		r.heard(m)
	}
}

// breaks has the stream break now and then, with the message that was under way, or the whole process end.
func (r *simRunner) breaks() bool {
	if dice := r.rnd.IntN(400); r.isCalm() || dice >= 4 {
		return false
	} else if dice == 0 {
		r.begin()
	}
	r.loses()
	return true
}

func (r *simRunner) hello() *wire.Hello {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &wire.Hello{Runner: r.id, Name: "sim", SinkTypes: []string{"log", "http"}, Credit: credited, HighestEpoch: r.epoch}
	for _, a := range r.running {
		left := max(0, time.Until(a.deadline))
		h.Running = append(h.Running, hook.Running{Lease: a.Lease, Row: a.Row, Attempt: a.Number, Left: left})
	}
	for _, p := range r.unacked {
		h.Unacknowledged = append(h.Unacknowledged, p)
	}
	slices.SortFunc(h.Running, func(a, b hook.Running) int { return compareLeases(a.Lease, b.Lease) })
	slices.SortFunc(h.Unacknowledged, func(a, b hook.Report) int { return compareLeases(a.Lease, b.Lease) })
	return h
}

func compareLeases(a, b hook.Lease) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.ID, b.ID))
}

func (r *simRunner) welcomed(epoch uint64, stream dispatchv1.DispatchService_LeaseClient) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch < r.epoch {
		return false
	}
	r.epoch, r.stream = epoch, stream
	return true
}

func (r *simRunner) heard(m *dispatchv1.LeaseResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempts, err := wire.ReadAttempts(m.GetAttempts())
	require.NoError(r.t, err)
	for _, a := range attempts {
		if a.Lease.Epoch < r.epoch {
			continue
		}
		attempt := &simAttempt{Attempt: a, deadline: time.Now().Add(a.Timeout)}
		r.running[a.Lease] = attempt
		r.work.Go(func() { r.attempt(attempt) })
	}
	for _, l := range append(wire.ReadLeases(m.GetSettled().GetLeases()), wire.ReadLeases(m.GetDrop().GetLeases())...) {
		delete(r.unacked, l)
	}
	for _, l := range wire.ReadLeases(m.GetDrop().GetLeases()) {
		delete(r.running, l)
	}
}

// attempt reads, delivers and reports.
func (r *simRunner) attempt(a *simAttempt) {
	fetched, err := r.store.Fetch(context.Background(), []hook.Row{a.Row})
	switch {
	case !r.has(a):
	case err != nil:
		r.end(a, hook.Outcome{Class: hook.NotStarted, Reason: "store_unavailable"})
	case fetched[0].Epoch > a.Lease.Epoch:
		r.mu.Lock()
		delete(r.running, a.Lease)
		r.mu.Unlock()
	case fetched[0].Delivery == nil || fetched[0].Hook == nil:
		r.end(a, hook.Outcome{Class: hook.Gone})
	default:
		r.deliver(a)
	}
}

// deliver has the attempt reach its sink. What it comes to depends on the delivery and the number of the attempt alone,
// and on what the destination is like.
func (r *simRunner) deliver(a *simAttempt) {
	id := a.Row.Hook
	rnd := rand.New(rand.NewPCG(r.seed<<8|uint64(a.Row.Key.Index), binary.BigEndian.Uint64(id[8:])+uint64(a.Number)))
	took := between(rnd, 0, 200*time.Millisecond)
	if rnd.IntN(30) == 0 {
		took = between(rnd, time.Second, 20*time.Second)
	}
	fails := rnd.IntN(10) == 0
	left := time.Until(a.deadline)
	r.began(a.Row.Ref())
	time.Sleep(min(took, left))
	mine, calm := r.has(a), r.isCalm()
	o := delivered
	switch {
	case took > left:
		o = hook.Outcome{Class: hook.TimedOut, Reason: "attempt_timeout 30000ms"}
	case !calm && (fails || r.isDown(a.Row.Key)):
		o = hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503}
	}
	r.ended(a.Row.Ref(), mine && o.Class == hook.Delivered)
	if mine {
		r.end(a, o)
	}
}

// has says whether the attempt is still the runner's.
func (r *simRunner) has(a *simAttempt) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[a.Lease] == a
}

func (r *simRunner) end(a *simAttempt, o hook.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[a.Lease] != a {
		return
	}
	delete(r.running, a.Lease)
	p := hook.Report{Lease: a.Lease, Row: a.Row, Attempt: a.Number, Outcome: o}
	r.unacked[a.Lease] = p
	list := wire.ReportsProto([]hook.Report{p})
	_ = r.stream.Send(&dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Outcomes{Outcomes: &dispatchv1.Outcomes{Outcomes: list}}})
}
