package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/ferry"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// settleWait lets outcomes gather. Nobody waits for a settle but the runner's acknowledgement and the windows, while each
// one costs a synced commit that holds up those that senders wait for. One that is pressing does not wait, and those that
// have gathered go with it.
const settleWait = 5 * time.Millisecond

// settleTimeout bounds one try at a settle.
const settleTimeout = 5 * time.Second

// slots settle what the core decides: for each fence slot one batch at a time, made of whatever has come meanwhile.
type slots struct {
	term    *term
	ctx     context.Context
	cancel  context.CancelFunc
	started map[store.Slot]*slot
	hurried []*slot // with something that does not wait any longer
}

// slot is one fence's line of settles.
type slot struct {
	*slots
	slot    store.Slot
	batcher *ferry.Batcher[hook.Settlement, struct{}]
	pending []hook.Settlement // what gathers; the loop owns it, as the three below
	hurry   bool
	alarm   *time.Timer
	failing map[string]time.Duration // pauses of the tenants that are set aside; the batcher's run owns it
}

func newSlots(t *term) *slots {
	ctx, cancel := context.WithCancel(context.Background())
	return &slots{term: t, ctx: ctx, cancel: cancel, started: make(map[store.Slot]*slot)}
}

// submit has what the core decided in one round settled. It belongs to the loop. The claimed-row windows bound what waits
// here.
func (s *slots) submit(settles []hook.Settlement) {
	for i := range settles {
		line, err := s.line(store.SlotOf(settles[i].Delivery.Partition, settles[i].Delivery.Key.Tenant))
		if err != nil {
			s.term.end(err)
			return
		}
		line.add(&settles[i])
	}
	for _, line := range s.hurried {
		line.flush()
	}
	s.hurried = s.hurried[:0]
}

func (s *slots) line(at store.Slot) (*slot, error) {
	if line, ok := s.started[at]; ok {
		return line, nil
	}
	line := &slot{slots: s, slot: at, failing: make(map[string]time.Duration)}
	cfg := ferry.Default[hook.Settlement]()
	cfg.MaxBatch, cfg.MaxQueue = s.batch(), 1<<30
	var err error
	if line.batcher, err = ferry.New(cfg, line.settle); err != nil {
		return nil, err
	}
	line.alarm = time.AfterFunc(settleWait, func() {
		s.term.post(func(*core.Core, hook.Timestamp) { line.flush() })
	})
	s.started[at] = line
	return line, nil
}

func (s *slots) batch() int { return max(1, s.term.scheduler.cfg.Core.Batch) }

func (l *slot) add(settle *hook.Settlement) {
	if len(l.pending) == 0 {
		l.alarm.Reset(settleWait)
	}
	l.pending = append(l.pending, *settle)
	if (settle.Pressing || len(l.pending) >= l.batch()) && !l.hurry {
		l.hurry = true
		l.hurried = append(l.hurried, l)
	}
}

// flush hands on what has gathered.
func (l *slot) flush() {
	l.hurry = false
	l.alarm.Stop()
	for _, settle := range l.pending {
		if err := l.batcher.Submit(settle, ignore); err != nil {
			l.term.end(err)
			break
		}
	}
	clear(l.pending)
	l.pending = l.pending[:0]
}

// close ends the lines; what is not settled is the next leader's.
func (s *slots) close() {
	s.cancel()
	for _, line := range s.started {
		line.alarm.Stop()
		_ = line.batcher.Close(s.ctx) // it says how much is left
	}
}

// settle commits a batch. What the store does not take is tried again until it lands or the term is over: an outcome is
// never dropped because the store had a bad moment. A tenant whose rows fail is set aside, so that the others go on.
func (l *slot) settle(_ context.Context, batch []hook.Settlement) ([]ferry.Result[struct{}], error) {
	healthy, failing := l.sort(batch)
	l.term.hub.hold(l.slot)
	defer l.term.hub.release(l.slot)
	if len(healthy) > 0 {
		if err := l.commit(healthy); err != nil {
			l.apart(healthy)
		}
	}
	for tenant, part := range failing {
		l.alone(tenant, part)
	}
	return make([]ferry.Result[struct{}], len(batch)), nil
}

// sort copies a batch, and takes the tenants out whose settles failed the last time.
func (l *slot) sort(batch []hook.Settlement) (healthy []hook.Settlement, failing map[string][]hook.Settlement) {
	if len(l.failing) == 0 {
		return slices.Clone(batch), nil
	}
	failing = make(map[string][]hook.Settlement)
	for _, s := range batch {
		tenant := s.Delivery.Key.Tenant
		if l.failing[tenant] > 0 {
			failing[tenant] = append(failing[tenant], s)
			continue
		}
		healthy = append(healthy, s)
	}
	return healthy, failing
}

// apart commits a batch that failed tenant by tenant, and leaves those that fail again for later.
func (l *slot) apart(settles []hook.Settlement) {
	tenants := make(map[string][]hook.Settlement)
	for _, s := range settles {
		tenants[s.Delivery.Key.Tenant] = append(tenants[s.Delivery.Key.Tenant], s)
	}
	for tenant, part := range tenants {
		if len(tenants) == 1 {
			l.later(tenant, part)
			return
		}
		l.alone(tenant, part)
	}
}

// alone commits one tenant's settles, or leaves them for later.
func (l *slot) alone(tenant string, part []hook.Settlement) {
	if l.commit(part) != nil {
		l.later(tenant, part)
		return
	}
	delete(l.failing, tenant)
}

// maxAside is the longest that a failing tenant is set aside.
const maxAside = 5 * time.Second

// later submits a tenant's settles again, after a pause that grows while they fail.
func (l *slot) later(tenant string, part []hook.Settlement) {
	pause := min(max(2*l.failing[tenant], 100*time.Millisecond), maxAside)
	l.failing[tenant] = pause
	l.term.spawn(func() {
		if !sleep(l.ctx, pause) {
			return
		}
		for _, s := range part {
			if l.batcher.Submit(s, ignore) != nil {
				return // closed: the term is over
			}
		}
	})
}

func ignore(struct{}, error) {}

// commit settles rows in one transaction and tells the core. One whose fate is unknown is repeated until it is known,
// since the slot can do nothing else before.
func (l *slot) commit(settles []hook.Settlement) error {
	for {
		done, err := l.try(settles)
		switch {
		case err == nil:
			l.term.hub.settled(settles, done.Start)
			l.term.scheduler.metrics.settled(settles)
			l.term.ended.Add(ended(settles))
			l.term.post(func(c *core.Core, now hook.Timestamp) { c.Settled(now, done.Start, settles) })
			return nil
		case l.ctx.Err() != nil:
			return err
		case errors.Is(err, store.ErrDeposed):
			l.term.end(err)
			return err
		}
		l.term.log.Warn("outcomes not settled", zap.Int("rows", len(settles)), zap.Error(err))
		if store.NotWritten(err) {
			return err
		}
		sleep(l.ctx, 100*time.Millisecond)
	}
}

func (l *slot) try(rows []hook.Settlement) (store.Settled, error) {
	ctx, cancel := context.WithTimeout(l.ctx, settleTimeout)
	defer cancel()
	return l.term.leader.Settle(ctx, l.slot, rows)
}

// ended counts the rows that are delivered or dead-lettered.
func ended(rows []hook.Settlement) (n int64) {
	for i := range rows {
		if k := rows[i].Verdict.Kind; k == hook.Complete || k == hook.Bury {
			n++
		}
	}
	return n
}
