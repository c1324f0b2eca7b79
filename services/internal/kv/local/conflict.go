package local

import (
	"hash/maphash"

	"ankusa.dev/services/internal/kv"
)

// maxConflicts bounds the table of recent commits, and so the memory that one endless transaction can cost.
const maxConflicts = 1 << 20

// conflicts knows, for every key committed since the oldest open transaction began, when that was last. Keys stand as
// hashes of 64 bits: two that collide cost a needless retry, once in some 10^13 checks against a full table. Not safe
// for concurrent use.
type conflicts struct {
	seed  maphash.Seed
	limit int
	last  map[uint64]kv.Timestamp
	queue []committed // by timestamp, from head
	head  int
	floor kv.Timestamp // commits up to here may have been forgotten
}

type committed struct {
	ts   kv.Timestamp
	hash uint64
}

func newConflicts(limit int) *conflicts {
	return &conflicts{seed: maphash.MakeSeed(), limit: limit, last: map[uint64]kv.Timestamp{}}
}

func (c *conflicts) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

// find returns the index of a hash that was committed after start, or -1.
func (c *conflicts) find(start kv.Timestamp, hashes []uint64) int {
	if start < c.floor {
		return 0
	}
	for i, h := range hashes {
		if c.last[h] > start {
			return i
		}
	}
	return -1
}

func (c *conflicts) add(ts kv.Timestamp, hashes []uint64) {
	for _, h := range hashes {
		c.last[h] = ts
		c.queue = append(c.queue, committed{ts, h})
	}
	for len(c.queue)-c.head > c.limit {
		c.floor = c.queue[c.head].ts
		c.drop()
	}
}

// prune forgets what no transaction that starts at oldest or later can conflict with.
func (c *conflicts) prune(oldest kv.Timestamp) {
	for c.head < len(c.queue) && c.queue[c.head].ts <= oldest {
		c.drop()
	}
	if c.head > len(c.queue)/2 {
		c.queue = c.queue[:copy(c.queue, c.queue[c.head:])]
		c.head = 0
	}
}

// drop forgets the oldest entry, unless its key has a newer one.
func (c *conflicts) drop() {
	e := c.queue[c.head]
	c.head++
	if c.last[e.hash] == e.ts {
		delete(c.last, e.hash)
	}
}

// reset forgets everything.
func (c *conflicts) reset() {
	clear(c.last)
	c.queue, c.head = c.queue[:0], 0
}
