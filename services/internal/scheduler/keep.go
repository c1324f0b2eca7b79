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

	// keepTimeout bounds one small call of the housekeeping: a region that does not answer costs one period of one job.
	keepTimeout = 10 * time.Second
	// dropTimeout bounds the dropping of old logs, which a store may do region by region.
	dropTimeout = 5 * time.Minute
	// collectTimeout bounds a collection, which looks for locks in every region and pauses for longer than a read lasts.
	collectTimeout = time.Hour
	// foldTimeout bounds a fold. Its pages commit one by one, so that one that is cut off goes on where it was.
	foldTimeout = 2 * time.Minute
)

// bounded gives one call its deadline.
func bounded(ctx context.Context, d time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return call(ctx)
}

// keep runs the leader's housekeeping until the term ends. None of it is needed for a delivery.
func (t *term) keep(ctx context.Context) {
	var all sync.WaitGroup
	for _, job := range []func(context.Context){
		t.writers.run,
		t.writers.fold,
		func(ctx context.Context) { t.every(ctx, sweepPeriod, "sweep dedupe keys", t.sweep) },
		func(ctx context.Context) { t.every(ctx, sweepPeriod, "drop old history", t.drop) },
		func(ctx context.Context) { t.every(ctx, collectPeriod, "collect old versions", t.collect) },
	} {
		all.Go(func() { job(ctx) })
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
			err := bounded(ctx, keepTimeout, func(ctx context.Context) (err error) {
				more, err = t.scheduler.deps.Store.SweepExpired(ctx, uint8(p), now)
				return err
			})
			if err != nil {
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
	return bounded(ctx, dropTimeout, func(ctx context.Context) error {
		return t.scheduler.deps.Store.DropEvents(ctx, now.Add(-t.scheduler.cfg.Retention))
	})
}

func (t *term) collect(ctx context.Context, now hook.Timestamp) error {
	if t.scheduler.deps.Collector == nil {
		return nil
	}
	return bounded(ctx, collectTimeout, func(ctx context.Context) error {
		_, err := t.scheduler.deps.Collector.Collect(ctx, now.Add(-collectAge))
		return err
	})
}
