package scheduler

import (
	"context"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

func (t *term) readLanes(ctx context.Context, r core.LaneRead) {
	var found []hook.LaneRows
	var sources map[string]core.Source
	err := t.reading(ctx, func(ctx context.Context) (err error) {
		if found, err = t.scheduler.deps.Store.ReadLanes(ctx, r.Lanes, r.Limit); err == nil {
			sources, err = t.scheduler.sourcesOf(ctx, wantedByLanes(found))
		}
		return err
	})
	if err != nil {
		t.log.Warn("lanes not read", zap.Int("lanes", len(r.Lanes)), zap.Error(err))
		t.post(func(c *core.Core, now hook.Timestamp) { c.LanesNotRead(now, r) })
		return
	}
	t.post(func(c *core.Core, now hook.Timestamp) { c.LanesRead(now, r, found, sources) })
}

func (t *term) scanLanes(ctx context.Context, s core.LaneScan) {
	var page store.LanePage
	var sources map[string]core.Source
	err := t.reading(ctx, func(ctx context.Context) (err error) {
		page, err = t.scheduler.deps.Store.ScanLanes(ctx, store.LaneScan{
			Partition: s.Partition, Key: s.Key, From: s.From, Lanes: s.Limit, Members: s.Members,
		})
		if err == nil {
			sources, err = t.scheduler.sourcesOf(ctx, wantedByLanes(page.Lanes))
		}
		return err
	})
	if err != nil {
		t.log.Warn("lanes not scanned", zap.Stringer("key", s.Key), zap.Error(err))
		t.post(func(c *core.Core, now hook.Timestamp) { c.LanesNotScanned(now, s) })
		return
	}
	t.post(func(c *core.Core, now hook.Timestamp) {
		c.LanesScanned(now, s, page.Lanes, page.Next, page.More, sources)
	})
}

func wantedByLanes(lanes []hook.LaneRows) wanted {
	w := wanted{}
	for _, l := range lanes {
		for i := range l.Rows {
			w.by(&l.Rows[i])
		}
	}
	return w
}
