package queue

import "time"

type stage uint8

const (
	resting stage = iota // nothing eligible
	waiting              // in the heap of deadlines
	due                  // in the list of bins to take from
	forming              // a batch is being taken from it
)

// bin holds the inputs that may share a batch.
type bin struct {
	key   string
	stage stage
	// count and weight are those of the eligible inputs: queued, and in no lane
	// that is busy.
	count  int
	weight int64
	nodes  int // all queued
	busy   int // lanes that are busy

	sole  *turn // of a queue without groups
	turns map[string]*turn
	ring  list[*turn]
	lanes map[string]*lane

	spares   *spares
	place    link[*bin]
	deadline slot[*bin]
}

func newBin(kinds Kinds, spares *spares) *bin {
	b := &bin{spares: spares}
	b.ring.init()
	b.place.owner, b.deadline.owner = b, b
	if kinds.Groups {
		b.turns = map[string]*turn{}
	} else {
		b.sole = newTurn()
	}
	if kinds.Lanes {
		b.lanes = map[string]*lane{}
	}
	return b
}

func (b *bin) turnOf(group string) *turn {
	if b.sole != nil {
		return b.sole
	}
	t := b.turns[group]
	if t == nil {
		t = b.spares.turns.get()
		t.key = group
		b.turns[group] = t
	}
	return t
}

func (b *bin) laneOf(key string) *lane {
	l := b.lanes[key]
	if l == nil {
		l = b.spares.lanes.get()
		l.key = key
		b.lanes[key] = l
	}
	return l
}

// add queues n in its turn or lane.
func (b *bin) add(n *Node, k Keys) {
	n.bin, n.turn, n.lane = b, b.turnOf(k.Group), nil
	b.nodes++
	n.turn.nodes++
	if !k.HasLane || b.lanes == nil {
		n.turn.plain.pushBack(&n.place)
		b.gain(1, n.Weight)
		b.enlist(n.turn)
		return
	}
	n.lane = b.laneOf(k.Lane)
	n.lane.nodes.pushBack(&n.place)
	n.lane.weight += n.Weight
	if n.lane.busy {
		return
	}
	b.gain(1, n.Weight)
	if n.lane.nodes.size == 1 {
		b.expose(n.lane)
	}
}

func (b *bin) gain(count int, weight int64) {
	b.count += count
	b.weight += weight
}

// enlist gives t its place in the ring, which it has while it is not empty.
func (b *bin) enlist(t *turn) {
	switch {
	case t.empty() && t.ring:
		b.ring.remove(&t.place)
		t.ring = false
	case !t.empty() && !t.ring:
		b.ring.pushBack(&t.place)
		t.ring = true
	}
}

// pass moves t behind the others.
func (b *bin) pass(t *turn) {
	if t.ring && b.ring.size > 1 {
		b.ring.remove(&t.place)
		b.ring.pushBack(&t.place)
	}
}

// expose lets the lane's first node be taken.
func (b *bin) expose(l *lane) {
	first := l.nodes.front()
	first.turn.heads.push(&l.head, first.seq)
	b.enlist(first.turn)
}

// hide is the reverse of expose; the lane's first node must still be in place.
func (b *bin) hide(l *lane) {
	t := l.nodes.front().turn
	t.heads.remove(&l.head)
	b.enlist(t)
}

// unlink takes a queued node out, wherever it stands. A lane that is exposed
// stays so with its next node.
func (b *bin) unlink(n *Node) {
	b.nodes--
	n.turn.nodes--
	if n.lane == nil {
		n.turn.plain.remove(&n.place)
		b.gain(-1, -n.Weight)
		b.enlist(n.turn)
	} else {
		b.unlinkLane(n)
	}
	if n.turn.nodes == 0 && b.turns != nil {
		delete(b.turns, n.turn.key)
		b.spares.turns.put(n.turn)
	}
}

func (b *bin) unlinkLane(n *Node) {
	l := n.lane
	exposed := l.head.placed()
	first := exposed && l.nodes.front() == n
	if first {
		b.hide(l)
	}
	l.nodes.remove(&n.place)
	l.weight -= n.Weight
	if !l.busy {
		b.gain(-1, -n.Weight)
	}
	if first && !l.nodes.empty() {
		b.expose(l)
	}
	b.forget(l)
}

func (b *bin) forget(l *lane) {
	if l.nodes.empty() && !l.busy {
		delete(b.lanes, l.key)
		b.spares.lanes.put(l)
	}
}

// claim marks a lane busy and what is left of it as no longer eligible.
func (b *bin) claim(l *lane) {
	l.busy = true
	b.busy++
	b.gain(-l.nodes.size, -l.weight)
}

// release is the reverse of claim, after the batch.
func (b *bin) release(l *lane) {
	l.busy = false
	b.busy--
	b.gain(l.nodes.size, l.weight)
	if !l.nodes.empty() {
		b.expose(l)
	}
	b.forget(l)
}

// oldest is the admission time of the oldest eligible node; there must be one.
func (b *bin) oldest() time.Duration {
	first := b.ring.front().oldest()
	for k := b.ring.root.next.next; k != &b.ring.root; k = k.next {
		if n := k.owner.oldest(); n.seq < first.seq {
			first = n
		}
	}
	return first.at
}

// each calls visit for every queued node.
func (b *bin) each(visit func(*Node)) {
	plain := func(t *turn) {
		for k := t.plain.root.next; k != &t.plain.root; k = k.next {
			visit(k.owner)
		}
	}
	if b.sole != nil {
		plain(b.sole)
	}
	for _, t := range b.turns {
		plain(t)
	}
	for _, l := range b.lanes {
		for k := l.nodes.root.next; k != &l.nodes.root; k = k.next {
			visit(k.owner)
		}
	}
}
