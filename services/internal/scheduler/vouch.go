package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// maxVouched bounds the sinks that are remembered for one stream; beyond it all of them are looked up again.
const maxVouched = 65_536

// vouchTimeout bounds the look-up for one message: what else the stream names waits for it.
const vouchTimeout = time.Second

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
	var looks sync.WaitGroup
	written := make([][]bool, len(unknown))
	for i, parts := range unknown {
		looks.Go(func() { written[i] = v.written(ctx, parts) })
	}
	looks.Wait()
	refused := make(map[store.SinkPart]struct{})
	for i, parts := range unknown {
		for j := range written[i] {
			if p := parts[j]; written[i][j] {
				v.remember(p)
			} else {
				refused[p] = struct{}{}
			}
		}
	}
	if len(refused) > 0 {
		v.refuse(c, refused)
	}
}

// written says of each sink whether the writers ever wrote to it, or nothing. The sinks are of one partition.
func (v *voucher) written(ctx context.Context, parts []store.SinkPart) (written []bool) {
	err := bounded(ctx, vouchTimeout, func(ctx context.Context) error {
		return v.term.reading(ctx, parts[0].Partition, func(ctx context.Context) (err error) {
			written, err = v.term.scheduler.deps.Store.Written(ctx, v.writers, parts)
			return err
		})
	})
	if err != nil {
		v.term.log.Warn("counters of named sinks not read", zap.Int("sinks", len(parts)), zap.Error(err))
		return nil
	}
	return written
}

// unknown is the sinks that are named for the first time, those of each partition apart.
func (v *voucher) unknown(c *wire.Committed) (unknown [][]store.SinkPart) {
	asked := make(map[store.SinkPart]struct{})
	places := make(map[uint8]int)
	ask := func(p store.SinkPart) {
		if _, known := v.known[p]; known {
			return
		}
		if _, twice := asked[p]; !twice {
			asked[p] = struct{}{}
			i, ok := places[p.Partition]
			if !ok {
				i = len(unknown)
				places[p.Partition], unknown = i, append(unknown, nil)
			}
			unknown[i] = append(unknown[i], p)
		}
	}
	for i := range c.Groups {
		ask(store.SinkPart{Partition: c.Groups[i].Partition, Key: c.Groups[i].Key})
	}
	for i := range c.Backlogs {
		ask(store.SinkPart{Partition: c.Backlogs[i].Partition, Key: c.Backlogs[i].Key})
	}
	return unknown
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
