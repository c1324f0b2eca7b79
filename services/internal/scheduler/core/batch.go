package core

import "hash/fnv"

// batchRoom says whether the runner can be given one more attempt of a sink that batches.
func (r *runner) batchRoom(size int64) bool {
	return r.connected && !r.leaving && r.rows < r.limit.Rows && (r.rows == 0 || r.bytes+size <= r.limit.Bytes)
}

// dispatchBatching starts attempts of the sinks that batch, keys in turn. No slot bounds them.
func (c *Core) dispatchBatching() {
	for c.batching.n > 0 {
		k := c.batching.next()
		c.start(k, k.pop(), func(cl *claim) *runner { return c.batcherFor(k, int64(cl.Size)) })
	}
}

// batcherFor is the runner that the key's destination prefers, or the next best with room: attempts of one destination
// meet, so that its batches fill.
func (c *Core) batcherFor(k *sinkKey, size int64) *runner {
	if k.home == nil || k.fleet != c.fleet {
		k.home, k.fleet = c.preferred(k, func(r *runner) bool { return r.connected && !r.leaving }), c.fleet
	}
	if k.home != nil && k.home.batchRoom(size) {
		return k.home
	}
	return c.preferred(k, func(r *runner) bool { return r.batchRoom(size) })
}

// preferred is the runner of those that will do and take the key's type which wins by rendezvous hashing.
func (c *Core) preferred(k *sinkKey, do func(*runner) bool) (best *runner) {
	most := uint64(0)
	for _, r := range c.runners {
		if !r.types[k.id.Type] || !do(r) {
			continue
		}
		h := fnv.New64a()
		h.Write([]byte(k.id.SourceID)) // tenants of a shared source share its destination
		h.Write([]byte{byte(k.id.Index >> 8), byte(k.id.Index)})
		h.Write(r.id[:])
		if score := h.Sum64(); best == nil || score > most {
			best, most = r, score
		}
	}
	return best
}

// mostBatched is the cap on a batching key's attempts at once.
func (c *Core) mostBatched() int { return 1 + c.rows }
