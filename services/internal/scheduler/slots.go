package scheduler

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/ferry"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// settleTimeout bounds one try at a settle.
const settleTimeout = 5 * time.Second

// slots settle what the core decides: for each fence slot one batch at a time, made of whatever has come meanwhile.
type slots struct {
	term    *term
	ctx     context.Context
	cancel  context.CancelFunc
	started map[store.Slot]*slot
}

// slot is one fence's line of settles.
type slot struct {
	*slots
	slot    store.Slot
	batcher *ferry.Batcher[core.Settle, struct{}]
}

func newSlots(t *term) *slots {
	ctx, cancel := context.WithCancel(context.Background())
	return &slots{term: t, ctx: ctx, cancel: cancel, started: make(map[store.Slot]*slot)}
}

// submit belongs to the loop. The claimed-row windows bound what waits here.
func (s *slots) submit(settle core.Settle) {
	at := store.SlotOf(settle.Delivery.Partition, settle.Delivery.Key.Tenant)
	line, ok := s.started[at]
	if !ok {
		line = &slot{slots: s, slot: at}
		cfg := ferry.Default[core.Settle]()
		cfg.MaxBatch, cfg.MaxQueue = max(1, s.term.scheduler.cfg.Core.Batch), 1<<30
		var err error
		if line.batcher, err = ferry.New(cfg, line.settle); err != nil {
			s.term.end(err)
			return
		}
		s.started[at] = line
	}
	if err := line.batcher.Submit(settle, func(struct{}, error) {}); err != nil {
		s.term.end(err)
	}
}

// close ends the lines; what is not settled is the next leader's.
func (s *slots) close() {
	s.cancel()
	for _, line := range s.started {
		line.batcher.Close(s.ctx)
	}
}

// settle commits a batch, and goes on trying until it lands or the term is over: an outcome is never dropped because
// the store had a bad moment.
func (l *slot) settle(_ context.Context, batch []core.Settle) ([]ferry.Result[struct{}], error) {
	settles := append([]core.Settle(nil), batch...)
	rows := make([]store.Settlement, len(settles))
	for i, s := range settles {
		rows[i] = store.Settlement{Delivery: s.Delivery, Verdict: s.Verdict, Position: s.Position, Claimed: s.Claimed}
	}
	l.term.hub.hold(l.slot)
	for l.ctx.Err() == nil {
		done, err := l.try(rows)
		if err == nil {
			l.term.hub.settled(l.slot, rows, done.Start)
			l.term.scheduler.metrics.settled(rows)
			l.term.post(func(c *core.Core, now hook.Timestamp) { c.Settled(now, done.Start, settles) })
			return make([]ferry.Result[struct{}], len(batch)), nil
		}
		if errors.Is(err, store.ErrDeposed) {
			l.term.end(err)
			break
		}
		l.term.log.Warn("outcomes not settled", zap.Int("rows", len(rows)), zap.Error(err))
		sleep(l.ctx, 100*time.Millisecond)
	}
	return nil, store.ErrDeposed
}

func (l *slot) try(rows []store.Settlement) (store.Settled, error) {
	ctx, cancel := context.WithTimeout(l.ctx, settleTimeout)
	defer cancel()
	return l.term.leader.Settle(ctx, l.slot, rows)
}
