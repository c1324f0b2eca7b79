package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/workers"
)

// event is something that happens to the core; it runs on the loop.
type event func(*core.Core, hook.Timestamp)

// term is the time of one leadership: the loop that owns the core, and the goroutines that carry out its effects.
type term struct {
	scheduler *Scheduler
	leader    *store.Leader
	log       *zap.Logger
	end       context.CancelCauseFunc
	valid     func() bool // nobody else can lead yet
	done      <-chan struct{}
	clock     clock
	events    chan event
	core      *core.Core
	began     *live // its settings as it began
	slots     *slots
	hub       *hub
	looks     *workers.Workers[inquiry] // run the reads and scans of the core; dispatch.batch can come at once
	work      sync.WaitGroup            // counts, records, housekeeping
	streams   *visitors
	admission *admission
	conns     map[hook.RunID]*runnerConn
	writers   *writers
	ended     atomic.Int64 // rows delivered or dead-lettered
	// condemning is held by whoever has a source's rows ended; the loop owns its order, and who waits for nothing to do.
	condemning chan struct{}
	order      order
	resting    map[chan struct{}]bool
}

// clock carries a timestamp of the store on by the monotonic clock.
type clock struct {
	base  hook.Timestamp
	since time.Time
}

func (c clock) now() hook.Timestamp { return c.base.Add(time.Since(c.since)) }

// eventQueue bounds the events that wait for the loop: streams block beyond it.
const eventQueue = 1024

func (s *Scheduler) newTerm(
	ctx context.Context, end context.CancelCauseFunc, leader *store.Leader, valid func() bool,
) (*term, error) {
	since := time.Now()
	var now hook.Timestamp
	err := bounded(ctx, readTimeout, func(ctx context.Context) (err error) {
		now, err = s.deps.Store.Now(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the store's time: %w", err)
	}
	known, err := s.known(ctx, leader)
	if err != nil {
		return nil, fmt.Errorf("read the records of runners: %w", err)
	}
	t := &term{
		scheduler: s, leader: leader, log: s.log.With(zap.Uint64("epoch", leader.Epoch())), end: end, valid: valid, done: ctx.Done(),
		clock: clock{now, since}, events: make(chan event, eventQueue), admission: newAdmission(),
		conns: make(map[hook.RunID]*runnerConn), hub: newHub(now), streams: newVisitors(),
		began: s.live.Load(), condemning: make(chan struct{}, 1), resting: make(map[chan struct{}]bool),
	}
	t.core = core.New(t.began.core, core.Term{Epoch: leader.Epoch(), Bump: leader.Bump(), Known: known, Now: now}, rand.Float64)
	t.looks = workers.New(t.began.core.Batch, func(q inquiry) { t.look(ctx, q) })
	t.slots = newSlots(t)
	t.writers = newWriters(t)
	return t, nil
}

// known reads which runners may still hold leases of earlier terms. In a store of one process they went with the
// process that led before.
func (s *Scheduler) known(ctx context.Context, leader *store.Leader) (map[hook.RunID]time.Duration, error) {
	records, err := s.deps.Store.Runners(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[hook.RunID]time.Duration, len(records))
	for _, r := range records {
		if !s.cfg.Exclusive {
			known[r.ID] = r.Longest
			continue
		}
		if err := removeRunner(ctx, leader, r.ID); err != nil {
			return nil, fmt.Errorf("remove that of %x, which is gone: %w", r.ID, err)
		}
	}
	return known, nil
}

// run owns the core until the context ends, and returns when every goroutine of the term has ended.
func (t *term) run(ctx context.Context) error {
	for p := range t.writers.counts {
		t.spawn(func() { t.recount(ctx, uint8(p)) })
	}
	t.spawn(func() { t.keep(ctx) })
	t.loop(ctx)
	t.hub.close()
	t.slots.close()
	t.looks.Close()
	t.work.Wait()
	return context.Cause(ctx)
}

// maxBurst bounds the events that are handled before their effects are carried out.
const maxBurst = 256

func (t *term) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-t.events:
			e(t.core, t.clock.now())
			runtime.Gosched() // lets whoever is about to post another do so
			t.burst()
		case <-timer.C:
		}
		t.core.Unwatched(!t.hub.watched())
		now := t.clock.now()
		t.core.Tick(now)
		wake := t.perform(ctx, now, t.core.Take())
		t.scheduler.metrics.observe(t.core.Stats())
		t.announce()
		if wake == 0 {
			timer.Stop()
			continue
		}
		timer.Reset(max(0, wake.Sub(t.clock.now())) + time.Millisecond/2)
	}
}

// burst handles what has queued meanwhile, so that its effects go out together.
func (t *term) burst() {
	for range maxBurst {
		select {
		case e := <-t.events:
			e(t.core, t.clock.now())
		default:
			return
		}
	}
}

// post hands an event to the loop; false when the term is over.
func (t *term) post(e event) bool {
	select {
	case t.events <- e:
		return true
	case <-t.done:
		return false
	}
}

// perform carries effects out, and returns when there is more to do without an event; zero for never.
func (t *term) perform(ctx context.Context, now hook.Timestamp, e core.Effects) hook.Timestamp {
	if err := t.slots.submit(now, &e); err != nil {
		t.end(err)
	}
	t.push(&e)
	for _, r := range e.Reads {
		t.looks.Do(t.read(r))
	}
	for _, s := range e.Scans {
		t.looks.Do(t.scan(s))
	}
	for _, r := range e.LaneReads {
		t.looks.Do(t.readLanes(r))
	}
	for _, s := range e.LaneScans {
		t.looks.Do(t.scanLanes(s))
	}
	for _, id := range e.Forget {
		t.spawn(func() { t.forget(ctx, id) })
	}
	for _, p := range e.Purged {
		t.purged(p)
	}
	t.publish(e.Events)
	return earlier(e.Wake, t.slots.next())
}

// earlier is the first of two times, of which zero is never.
func earlier(a, b hook.Timestamp) hook.Timestamp {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// publish hands events to the watchers, and a breaker's to the log and the metrics, too.
func (t *term) publish(events []hook.Event) {
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case hook.EventBreakerOpened:
			t.log.Warn("breaker opened", zap.Stringer("key", e.Key))
			t.scheduler.metrics.breaker(e)
		case hook.EventBreakerHalfOpen, hook.EventBreakerClosed:
			t.scheduler.metrics.breaker(e)
		default:
		}
	}
	t.hub.publish(events)
}

func (t *term) spawn(f func()) {
	t.work.Go(f)
}

// forget removes a runner's record, and tries until it is gone: the next leader waits for every runner on record.
func (t *term) forget(ctx context.Context, id hook.RunID) {
	for err := removeRunner(ctx, t.leader, id); err != nil && ctx.Err() == nil; err = removeRunner(ctx, t.leader, id) {
		t.log.Warn("runner's record not removed", zap.Binary("runner_id", id[:]), zap.Error(err))
		sleep(ctx, time.Second)
	}
}

func removeRunner(ctx context.Context, l *store.Leader, id hook.RunID) error {
	return bounded(ctx, keepTimeout, func(ctx context.Context) error { return l.RemoveRunner(ctx, id) })
}

// recount counts a partition's rows as the term begins, and again whenever writers want it, one count at a time.
func (t *term) recount(ctx context.Context, partition uint8) {
	for {
		t.count(ctx, partition)
		select {
		case <-t.writers.counts[partition]:
		case <-ctx.Done():
			return
		}
	}
}

// count reads by the counters which sinks have rows, and leaves them to scans.
func (t *term) count(ctx context.Context, partition uint8) {
	for ctx.Err() == nil {
		err := t.scheduler.deps.Store.Outstanding(ctx, partition, func(w store.Work) {
			t.post(func(c *core.Core, now hook.Timestamp) {
				c.Backlog(now, w.Partition, w.Key, w.Position, w.Rows, w.Ordered)
			})
		})
		if err == nil {
			return
		}
		t.log.Warn("counters not read", zap.Uint8("partition", partition), zap.Error(err))
		sleep(ctx, time.Second)
	}
}
