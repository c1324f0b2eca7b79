package scheduler

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

// readTimeout bounds one read or scan, the wait for its place included.
const readTimeout = 5 * time.Second

// admission holds core.PartitionReads places for each partition: those that wait for a part of the store that is stuck
// hold up none of another.
type admission [math.MaxUint8 + 1]chan struct{}

func newAdmission() *admission {
	a := new(admission)
	for i := range a {
		a[i] = make(chan struct{}, core.PartitionReads)
	}
	return a
}

// enter waits for a place, which leave gives back, or for the end of the context.
func (a *admission) enter(ctx context.Context, partition uint8) error {
	select {
	case a[partition] <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for one of %d reads of partition %d: %w", core.PartitionReads, partition, ctx.Err())
	}
}

func (a *admission) leave(partition uint8) { <-a[partition] }

// reading runs a read of a partition with its deadline.
func (t *term) reading(ctx context.Context, partition uint8, read func(context.Context) error) error {
	return bounded(ctx, readTimeout, func(ctx context.Context) error {
		if err := t.admission.enter(ctx, partition); err != nil {
			return err
		}
		defer t.admission.leave(partition)
		return read(ctx)
	})
}

// inquiry is a look into the store that the core asks for. What is found goes to it together with the sources of the rows.
type inquiry struct {
	partition uint8
	find      func(context.Context) (wanted, error)
	found     func(*core.Core, hook.Timestamp, map[string]core.Source)
	// failed tells the core, and message and field the log, that the store did not answer.
	failed  func(*core.Core, hook.Timestamp)
	message string
	field   zap.Field
}

// look makes an inquiry and tells the core.
func (t *term) look(ctx context.Context, q inquiry) {
	var sources map[string]core.Source
	err := t.reading(ctx, q.partition, func(ctx context.Context) error {
		w, err := q.find(ctx)
		if err == nil {
			sources, err = t.scheduler.sourcesOf(ctx, w)
		}
		return err
	})
	if err != nil {
		t.log.Warn(q.message, q.field, zap.Error(err))
		t.post(q.failed)
		return
	}
	t.post(func(c *core.Core, now hook.Timestamp) { q.found(c, now, sources) })
}

func (t *term) read(r core.Read) inquiry {
	find := t.scheduler.deps.Store.Rows
	if r.Anew {
		find = t.scheduler.deps.Store.Reread
	}
	var rows []core.Found
	return inquiry{
		partition: r.Rows[0].Partition,
		find: func(ctx context.Context) (wanted, error) {
			found, err := find(ctx, r.Rows)
			w := wanted{}
			rows = make([]core.Found, len(found))
			for i, f := range found {
				rows[i] = core.Found{Delivery: f.Delivery, Hook: f.Hook}
				w.by(f.Delivery)
			}
			return w, err
		},
		found: func(c *core.Core, now hook.Timestamp, sources map[string]core.Source) {
			c.RowsRead(now, r, rows, sources)
		},
		failed:  func(c *core.Core, now hook.Timestamp) { c.ReadFailed(now, r) },
		message: "rows not read", field: zap.Int("rows", len(r.Rows)),
	}
}

func (t *term) scan(s core.Scan) inquiry {
	var page store.DuePage
	return inquiry{
		partition: s.Partition,
		find: func(ctx context.Context) (_ wanted, err error) {
			page, err = t.scheduler.deps.Store.ScanDue(ctx, store.DueScan{
				Partition: s.Partition, Key: s.Key, From: s.From, After: s.After, Limit: s.Limit,
			})
			return wantedBy(page.Rows), err
		},
		found: func(c *core.Core, now hook.Timestamp, sources map[string]core.Source) {
			c.Scanned(now, s, page.Rows, page.More, sources)
		},
		failed:  func(c *core.Core, now hook.Timestamp) { c.ScanFailed(now, s) },
		message: "rows not scanned", field: zap.Stringer("key", s.Key),
	}
}

func (t *term) readLanes(r core.LaneRead) inquiry {
	var lanes []hook.LaneRows
	return inquiry{
		partition: r.Lanes[0].Partition,
		find: func(ctx context.Context) (_ wanted, err error) {
			lanes, err = t.scheduler.deps.Store.ReadLanes(ctx, r.Lanes, r.Limit)
			return wantedByLanes(lanes), err
		},
		found: func(c *core.Core, now hook.Timestamp, sources map[string]core.Source) {
			c.LanesRead(now, r, lanes, sources)
		},
		failed:  func(c *core.Core, now hook.Timestamp) { c.LanesNotRead(now, r) },
		message: "lanes not read", field: zap.Int("lanes", len(r.Lanes)),
	}
}

func (t *term) scanLanes(s core.LaneScan) inquiry {
	var page store.LanePage
	return inquiry{
		partition: s.Partition,
		find: func(ctx context.Context) (_ wanted, err error) {
			page, err = t.scheduler.deps.Store.ScanLanes(ctx, store.LaneScan{
				Partition: s.Partition, Key: s.Key, From: s.From, Lanes: s.Limit, Members: s.Members,
			})
			return wantedByLanes(page.Lanes), err
		},
		found: func(c *core.Core, now hook.Timestamp, sources map[string]core.Source) {
			c.LanesScanned(now, s, page.Lanes, page.Next, page.More, sources)
		},
		failed:  func(c *core.Core, now hook.Timestamp) { c.LanesNotScanned(now, s) },
		message: "lanes not scanned", field: zap.Stringer("key", s.Key),
	}
}
