package scheduler

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
)

const (
	sweepPeriod   = 10 * time.Minute
	collectPeriod = 10 * time.Minute
	// collectAge is how far back the store can be read: longer than any read or transaction lasts.
	collectAge = 10 * time.Minute
)

// keep runs the leader's housekeeping until the term ends. None of it is needed for a delivery.
func (t *term) keep(ctx context.Context) {
	var all sync.WaitGroup
	for _, job := range []func(context.Context){
		t.writers.run,
		func(ctx context.Context) { t.every(ctx, sweepPeriod, "sweep dedupe keys", t.sweep) },
		func(ctx context.Context) { t.every(ctx, sweepPeriod, "drop old history", t.drop) },
		func(ctx context.Context) { t.every(ctx, collectPeriod, "collect old versions", t.collect) },
	} {
		all.Add(1)
		go func() {
			defer all.Done()
			job(ctx)
		}()
	}
	all.Wait()
}

func (t *term) every(ctx context.Context, period time.Duration, what string, job func(context.Context, hook.Timestamp) error) {
	for sleep(ctx, period) {
		if err := job(ctx, t.clock.now()); err != nil && ctx.Err() == nil {
			t.log.Warn("housekeeping failed", zap.String("job", what), zap.Error(err))
		}
	}
}

func (t *term) sweep(ctx context.Context, now hook.Timestamp) error {
	for p := range t.scheduler.deps.Store.Partitions() {
		for more := true; more; {
			var err error
			if more, err = t.scheduler.deps.Store.SweepExpired(ctx, uint8(p), now); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *term) drop(ctx context.Context, now hook.Timestamp) error {
	if t.scheduler.cfg.Retention <= 0 {
		return nil
	}
	return t.scheduler.deps.Store.DropEvents(ctx, now.Add(-t.scheduler.cfg.Retention))
}

func (t *term) collect(ctx context.Context, now hook.Timestamp) error {
	if t.scheduler.deps.Collector == nil {
		return nil
	}
	_, err := t.scheduler.deps.Collector.Collect(ctx, now.Add(-collectAge))
	return err
}
