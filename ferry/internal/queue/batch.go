package queue

import "time"

// Batch collects the nodes of one batch. The zero value is ready; it may be
// used again after Reset.
type Batch struct {
	// Nodes are in the order in which they were taken: by turns between groups,
	// in order of admission within a group and within a lane.
	Nodes  []*Node
	Weight int64

	bin   *bin
	lanes []*lane
}

// Reset forgets the batch, which must have been finished and released.
func (b *Batch) Reset() {
	clear(b.Nodes)
	clear(b.lanes)
	b.Nodes, b.lanes, b.Weight, b.bin = b.Nodes[:0], b.lanes[:0], 0, nil
}

// HasLanes reports whether the batch must be released.
func (b *Batch) HasLanes() bool { return len(b.lanes) > 0 }

// Take moves up to limit nodes into the batch and reports whether another call
// could move more. Ready must have said so before the first call for a batch;
// all calls for it come before those for another, and Seal ends them. It costs
// what it takes.
func (q *Queue) Take(batch *Batch, limit int) bool {
	if batch.bin == nil {
		batch.bin = q.due.front()
		q.rest(batch.bin)
		batch.bin.stage = forming
	}
	b := batch.bin
	for range limit {
		if b.ring.empty() || len(batch.Nodes) >= q.limits.Batch {
			return false
		}
		t := b.ring.front()
		n := t.oldest()
		if len(batch.Nodes) > 0 && n.Weight > q.limits.BatchWeight-batch.Weight {
			return false
		}
		q.own(batch, n)
		b.pass(t)
	}
	return true
}

// own moves n from the queue into the batch. A lane that has given the batch
// its first node is busy from then on; until the batch is sealed its next node
// is still exposed, to this batch alone.
func (q *Queue) own(batch *Batch, n *Node) {
	if l := n.lane; l != nil && !l.busy {
		n.bin.claim(l)
		batch.lanes = append(batch.lanes, l)
	}
	q.remove(n)
	batch.Nodes = append(batch.Nodes, n)
	batch.Weight += n.Weight
}

// Seal ends the taking: what is left of the batch's lanes stays until Release.
func (q *Queue) Seal(batch *Batch, now time.Duration) {
	for _, l := range batch.lanes {
		if l.head.placed() {
			batch.bin.hide(l)
		}
	}
	batch.bin.stage = resting
	q.settle(batch.bin, now)
}

// Finish ends the holding of the batch's nodes. It costs the batch if groups
// are in use.
func (q *Queue) Finish(batch *Batch) {
	if q.groups == nil {
		q.held.add(-len(batch.Nodes), -batch.Weight)
		return
	}
	for _, n := range batch.Nodes {
		q.drop(n)
	}
}

// Release makes the lanes of a batch that has some free for the next one. It costs the lanes
// of the batch and the groups of its bin.
func (q *Queue) Release(batch *Batch, now time.Duration) {
	b := batch.bin
	for _, l := range batch.lanes {
		b.release(l)
	}
	if b.stage != forming {
		q.settle(b, now)
	}
}
