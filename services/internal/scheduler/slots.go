package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/ferry"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// settleWait lets outcomes gather. For most of them only the runner's acknowledgement and the windows wait, while each settle
// costs a synced commit that holds up those that senders wait for. An urgent one does not wait, and what has gathered
// goes with it.
const settleWait = 5 * time.Millisecond

// What gathers while a settle is under way is settled together, up to behind pages and maxBehind rows, or one page where that
// has more: a slot settles one batch after the other, and a larger one takes little longer.
const behind, maxBehind = 4, 512

// settleTimeout bounds one try at a settle.
const settleTimeout = 5 * time.Second

// settler commits what became of rows.
type settler interface {
	Settle(ctx context.Context, slot store.Slot, batch []hook.Settlement) (store.Settled, error)
}

// slots settle what the core decides: for each fence slot one batch at a time, made of whatever has come meanwhile.
type slots struct {
	leader settler
	hub    *hub
	log    *zap.Logger
	page   int                                                  // rows that make a settle due: as many as a scan asks for
	landed func(rows []hook.Settlement, started hook.Timestamp) // tells of a settle
	end    func(error)                                          // ends the term

	ctx     context.Context
	cancel  context.CancelFunc
	pauses  sync.WaitGroup // of tenants that are set aside
	started map[store.Slot]*slot
	// gathering are those with rows that are not handed on yet.
	gathering []*slot
}

// slot settles the rows that one fence guards.
type slot struct {
	of      *slots
	slot    store.Slot
	batcher *ferry.Batcher[[]hook.Settlement, struct{}]
	pending []hook.Settlement // what gathers until due; the loop owns both
	due     hook.Timestamp
	failing map[string]time.Duration // pauses of the tenants that are set aside; the batcher's run owns it
}

func newSlots(t *term) *slots {
	ctx, cancel := context.WithCancel(context.Background())
	return &slots{
		leader: t.leader, hub: t.hub, log: t.log, page: t.scheduler.cfg.Core.Batch, landed: t.landed, end: t.end,
		ctx: ctx, cancel: cancel, started: make(map[store.Slot]*slot),
	}
}

// submit takes over what the core decided in one round, and hands on what is due by now. It belongs to the loop. The
// claimed-row windows bound what waits here.
func (s *slots) submit(now hook.Timestamp, e *core.Effects) error {
	for i := range e.Settles {
		if err := s.gather(&e.Settles[i], now, now.Add(settleWait)); err != nil {
			return err
		}
	}
	for i := range e.Urgent {
		if err := s.gather(&e.Urgent[i], now, now); err != nil {
			return err
		}
	}
	later := s.gathering[:0]
	for _, l := range s.gathering {
		if l.due > now {
			later = append(later, l)
		} else if err := l.flush(); err != nil {
			return err
		}
	}
	s.gathering = later
	return nil
}

// gather keeps a row until due at the latest; a page is due at once.
func (s *slots) gather(row *hook.Settlement, now, due hook.Timestamp) error {
	l, err := s.at(store.SlotOf(row.Delivery.Partition, row.Delivery.Key.Tenant))
	if err != nil {
		return err
	}
	if len(l.pending) == 0 {
		l.due = due
		s.gathering = append(s.gathering, l)
	}
	l.pending = append(l.pending, *row)
	if l.due = min(l.due, due); len(l.pending) >= s.page {
		l.due = now
	}
	return nil
}

// next is when something is due; zero for never.
func (s *slots) next() (at hook.Timestamp) {
	for _, l := range s.gathering {
		at = earlier(at, l.due)
	}
	return at
}

func (s *slots) at(slotted store.Slot) (*slot, error) {
	if l, ok := s.started[slotted]; ok {
		return l, nil
	}
	l := &slot{of: s, slot: slotted, failing: make(map[string]time.Duration)}
	cfg := ferry.Default[[]hook.Settlement]()
	cfg.MaxQueue, cfg.MaxBatchWeight = 1<<30, int64(max(s.page, min(behind*s.page, maxBehind)))
	cfg.Weight = func(rows []hook.Settlement) int64 { return int64(len(rows)) }
	var err error
	if l.batcher, err = ferry.New(cfg, l.settle); err != nil {
		return nil, fmt.Errorf("settle slot %v: %w", slotted, err)
	}
	s.started[slotted] = l
	return l, nil
}

// flush hands on what has gathered, in pieces of a page: a batch has room for several.
func (l *slot) flush() error {
	for part := range slices.Chunk(l.pending, l.of.page) {
		if err := l.batcher.Submit(part, ignore); err != nil {
			return fmt.Errorf("settle slot %v: %w", l.slot, err)
		}
	}
	l.pending = make([]hook.Settlement, 0, min(len(l.pending), l.of.page))
	return nil
}

// close ends the slots; what is not settled is the next leader's.
func (s *slots) close() {
	s.cancel()
	for _, l := range s.started {
		_ = l.batcher.Close(s.ctx) // it says how much is left
	}
	s.pauses.Wait()
}

// settle commits a batch. What the store does not take is tried again until it lands or the term is over: an outcome is
// never dropped because the store had a bad moment. A tenant whose rows fail is set aside, so that the others go on.
func (l *slot) settle(_ context.Context, batch [][]hook.Settlement) ([]ferry.Result[struct{}], error) {
	rows := batch[0]
	if len(batch) > 1 {
		rows = slices.Concat(batch...)
	}
	healthy, failing := l.split(rows)
	l.of.hub.hold(l.slot)
	defer l.of.hub.release(l.slot)
	if len(healthy) > 0 {
		if err := l.commit(healthy); err != nil {
			l.commitByTenant(healthy, err)
		}
	}
	for tenant, part := range failing {
		if l.of.ctx.Err() == nil {
			l.commitTenant(tenant, part)
		}
	}
	return make([]ferry.Result[struct{}], len(batch)), nil
}

// split takes the tenants out whose settles failed the last time.
func (l *slot) split(rows []hook.Settlement) (healthy []hook.Settlement, failing map[string][]hook.Settlement) {
	if len(l.failing) == 0 {
		return rows, nil
	}
	failing = make(map[string][]hook.Settlement)
	for _, s := range rows {
		tenant := s.Delivery.Key.Tenant
		if l.failing[tenant] > 0 {
			failing[tenant] = append(failing[tenant], s)
			continue
		}
		healthy = append(healthy, s)
	}
	return healthy, failing
}

// commitByTenant commits a batch that failed tenant by tenant, and leaves those that fail again for later. When the term is
// over nothing is: what is not settled is the next leader's.
func (l *slot) commitByTenant(settles []hook.Settlement, failed error) {
	tenants := make(map[string][]hook.Settlement)
	for _, s := range settles {
		tenants[s.Delivery.Key.Tenant] = append(tenants[s.Delivery.Key.Tenant], s)
	}
	if len(tenants) > 1 && l.of.ctx.Err() == nil {
		l.of.log.Warn("outcomes not settled together", zap.Int("tenants", len(tenants)), zap.Int("rows", len(settles)), zap.Error(failed))
	}
	for tenant, part := range tenants {
		switch {
		case l.of.ctx.Err() != nil:
			return
		case len(tenants) == 1:
			l.retryLater(tenant, part, failed)
		default:
			l.commitTenant(tenant, part)
		}
	}
}

// commitTenant commits one tenant's settles, or leaves them for later.
func (l *slot) commitTenant(tenant string, part []hook.Settlement) {
	if err := l.commit(part); err != nil {
		l.retryLater(tenant, part, err)
		return
	}
	delete(l.failing, tenant)
}

// pause is how long a settle that failed waits at first, before it is tried again; maxAside is the longest.
const pause, maxAside = 100 * time.Millisecond, 5 * time.Second

// retryLater submits a tenant's settles again, after a pause that grows while they fail.
func (l *slot) retryLater(tenant string, part []hook.Settlement, failed error) {
	if l.of.ctx.Err() != nil {
		return
	}
	wait := min(max(2*l.failing[tenant], pause), maxAside)
	l.failing[tenant] = wait
	l.of.log.Warn("outcomes not settled", zap.String("tenant", tenant), zap.Int("rows", len(part)), zap.Error(failed))
	l.of.pauses.Go(func() {
		if sleep(l.of.ctx, wait) {
			_ = l.batcher.Submit(part, ignore) // it fails when the term is over
		}
	})
}

func ignore(struct{}, error) {}

// maxUnknown is the longest pause between two looks at the fate of a settle.
const maxUnknown = time.Second

// commit settles rows in one transaction and tells of it. One whose fate is unknown is repeated until it is known, since
// the slot can do nothing else before; an error says that nothing was written, or that the term is over.
func (l *slot) commit(rows []hook.Settlement) error {
	for wait := pause; ; wait = min(2*wait, maxUnknown) {
		done, err := l.try(rows)
		switch {
		case err == nil:
			l.of.landed(rows, done.Start)
			return nil
		case errors.Is(err, store.ErrDeposed):
			l.of.end(err)
			l.of.cancel()
			return err
		case store.NotWritten(err), l.of.ctx.Err() != nil:
			return err
		}
		l.of.log.Warn("fate of outcomes is unknown", zap.Int("rows", len(rows)), zap.Error(err))
		sleep(l.of.ctx, wait)
	}
}

func (l *slot) try(rows []hook.Settlement) (store.Settled, error) {
	ctx, cancel := context.WithTimeout(l.of.ctx, settleTimeout)
	defer cancel()
	return l.of.leader.Settle(ctx, l.slot, rows)
}

// landed tells the watchers, the metrics and the core of a settle.
func (t *term) landed(rows []hook.Settlement, started hook.Timestamp) {
	t.hub.settled(rows, started)
	t.scheduler.metrics.settled(rows)
	t.ended.Add(ended(rows))
	t.post(func(c *core.Core, now hook.Timestamp) { c.Settled(now, started, rows) })
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
