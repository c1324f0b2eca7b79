package scheduler

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// maxVouched bounds the sinks that are remembered for one stream; beyond it all of them are looked up again.
const maxVouched = 65_536

// voucher keeps from the core what a stream names of sinks that its writers never wrote to: every name costs the core a
// key and a scan, and made-up ones have no end. One goroutine owns it.
type voucher struct {
	term    *term
	writers []hook.RunID
	known   map[store.SinkPart]struct{}
	warned  bool
}

func newVoucher(t *term, writers []hook.RunID) *voucher {
	return &voucher{term: t, writers: writers, known: make(map[store.SinkPart]struct{})}
}

// sift drops what no counter vouches for. What cannot be looked up is let through: rows that exist must not wait for a
// store that has a bad moment.
func (v *voucher) sift(ctx context.Context, c *wire.Committed) {
	unknown := v.unknown(c)
	if len(unknown) == 0 {
		return
	}
	var written []bool
	err := v.term.reading(ctx, func(ctx context.Context) (err error) {
		written, err = v.term.scheduler.deps.Store.Written(ctx, v.writers, unknown)
		return err
	})
	if err != nil {
		v.term.log.Warn("counters of named sinks not read", zap.Int("sinks", len(unknown)), zap.Error(err))
		return
	}
	refused := make(map[store.SinkPart]struct{})
	for i, p := range unknown {
		if !written[i] {
			refused[p] = struct{}{}
		} else {
			v.remember(p)
		}
	}
	if len(refused) > 0 {
		v.refuse(c, refused)
	}
}

func (v *voucher) unknown(c *wire.Committed) (parts []store.SinkPart) {
	asked := make(map[store.SinkPart]struct{})
	ask := func(p store.SinkPart) {
		if _, known := v.known[p]; known {
			return
		}
		if _, twice := asked[p]; !twice {
			asked[p] = struct{}{}
			parts = append(parts, p)
		}
	}
	for i := range c.Groups {
		ask(store.SinkPart{Partition: c.Groups[i].Partition, Key: c.Groups[i].Key})
	}
	for i := range c.Backlogs {
		ask(store.SinkPart{Partition: c.Backlogs[i].Partition, Key: c.Backlogs[i].Key})
	}
	return parts
}

func (v *voucher) remember(p store.SinkPart) {
	if len(v.known) >= maxVouched {
		clear(v.known)
	}
	v.known[p] = struct{}{}
}

func (v *voucher) refuse(c *wire.Committed, refused map[store.SinkPart]struct{}) {
	v.term.scheduler.metrics.madeUp.Add(float64(len(refused)))
	if !v.warned {
		v.warned = true
		v.term.log.Warn("a writer names sinks that it never wrote to", zap.Binary("writer_id", v.writers[0][:]), zap.Int("sinks", len(refused)))
	}
	c.Groups = slices.DeleteFunc(c.Groups, func(g hook.Group) bool {
		_, gone := refused[store.SinkPart{Partition: g.Partition, Key: g.Key}]
		return gone
	})
	c.Backlogs = slices.DeleteFunc(c.Backlogs, func(b wire.Backlog) bool {
		_, gone := refused[store.SinkPart{Partition: b.Partition, Key: b.Key}]
		return gone
	})
}
