package core

import (
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// batchWorld is what a world knows of sinks that batch.
type batchWorld struct {
	rnd *rand.Rand
}

// batch has some sinks of a world batch. Worlds that were kept are left as they were.
func (w *world) batch() {
	b := &w.batching
	b.rnd = rand.New(rand.NewPCG(w.seed, 13))
	if b.rnd.IntN(3) == 0 || w.kept() {
		return
	}
	w.cfg.Batching = map[string]bool{"sqs": true}
	for i := range w.sinks {
		ordered := w.lanes.ordered[w.sinks[i]]
		if b.rnd.IntN(3) == 0 {
			w.sinks[i].Type = "sqs"
		}
		w.lanes.ordered[w.sinks[i]] = ordered
	}
}

// batchCredit is what a new runner takes of sinks that batch.
func (w *world) batchCredit() hook.Credit {
	rnd := w.batching.rnd
	return hook.Credit{Rows: 1 + rnd.IntN(30), Bytes: int64(500 + rnd.IntN(20_000))}
}

// hasRoom is the model's verdict on an attempt that reaches a runner: it has what it said that it can take.
func (r *simRunner) hasRoom(l *Lease) {
	w := r.w
	batches := w.cfg.Batching[l.Delivery.Key.Type]
	n, bytes, earlier := 0, int64(0), false
	for _, a := range r.running {
		if w.cfg.Batching[a.Delivery.Key.Type] != batches {
			continue
		}
		n++
		bytes += int64(a.Delivery.Size)
		earlier = earlier || a.Lease.Lease.Epoch < w.epoch // the leader learns its size from the store
	}
	if !batches {
		require.Less(w.t, n, r.slots, "seed %d: credit", w.seed)
		return
	}
	require.Less(w.t, n, r.batches.Rows, "seed %d: credit of rows", w.seed)
	if n > 0 && !earlier {
		require.LessOrEqual(w.t, bytes+int64(l.Delivery.Size), r.batches.Bytes, "seed %d: credit of bytes", w.seed)
	}
}
