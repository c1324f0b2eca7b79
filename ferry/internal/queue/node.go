package queue

import "time"

// Node is one input's place in a Queue. It may be admitted again after it has
// left, has been drained, or its batch has finished.
type Node struct {
	// Owner is carried for the caller; the queue never looks at it.
	Owner any
	// Weight counts against every weight limit. It must not be negative or
	// change while the node is held.
	Weight int64

	seq    int64
	at     time.Duration
	queued bool
	place  link[*Node]
	tally  *tally
	turn   *turn
	lane   *lane
	bin    *bin
}

// Keys say where an input belongs. A key counts only if the queue was made for
// keys of its kind.
type Keys struct {
	Group, Lane, Bin string
	// HasLane is false for an input that needs no order.
	HasLane bool
}

// At is the time of admission as given to Admit, never before that of an
// earlier node.
func (n *Node) At() time.Duration { return n.at }

// tally counts what is held: buffered and in flight.
type tally struct {
	key    string
	count  int
	weight int64
}

// admits reports the bound that one more input of weight w would break. What
// is heavier than the whole bound is let in when nothing else is held.
func (t *tally) admits(w int64, maxCount int, maxWeight int64) (count, weight bool) {
	return t.count < maxCount, t.count == 0 || w <= maxWeight-t.weight
}

func (t *tally) add(count int, weight int64) {
	t.count += count
	t.weight += weight
}

// turn is the eligible part of one group in one bin, and its place in the ring
// from which batches are taken.
type turn struct {
	key   string
	nodes int // queued nodes that refer to this turn, eligible or not
	plain list[*Node]
	heads heap[*lane]
	place link[*turn]
	ring  bool
}

func newTurn() *turn {
	t := &turn{}
	t.plain.init()
	t.place.owner = t
	return t
}

func (t *turn) empty() bool { return t.plain.empty() && t.heads.empty() }

// oldest returns the eligible node that was admitted first. The turn must not
// be empty.
func (t *turn) oldest() *Node {
	if t.heads.empty() {
		return t.plain.front()
	}
	head := t.heads.min().owner.nodes.front()
	if t.plain.empty() || head.seq < t.plain.front().seq {
		return head
	}
	return t.plain.front()
}

// lane holds the queued inputs of one key in order. While it is busy a batch
// that holds some of its inputs is forming or running.
type lane struct {
	key    string
	nodes  list[*Node]
	weight int64
	busy   bool
	head   slot[*lane] // in the heap of its first node's turn, while exposed
}

func newLane() *lane {
	l := &lane{}
	l.nodes.init()
	l.head.owner = l
	return l
}
