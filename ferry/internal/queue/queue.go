// Package queue is the state of a batcher without its goroutines: which inputs
// are held, which of them may be taken, in what order, and when. It has no
// lock, no clock and no I/O; its caller serialises all calls and says what time
// it is. A call costs a constant, or the logarithm of the lanes of a group,
// unless its comment says otherwise.
package queue

import (
	"math"
	"slices"
	"time"
)

// Never is the deadline of a queue with nothing to wait for.
const Never = time.Duration(math.MaxInt64)

// Bound names the limit that an input would have broken.
type Bound uint8

// The bounds, in the order in which they are checked.
const (
	None Bound = iota
	Total
	TotalWeight
	Group
	GroupWeight
)

// Limits of a Queue. A batch or held limit of zero means none.
type Limits struct {
	Batch       int
	BatchWeight int64
	// Wait is how long the oldest eligible input may wait for company.
	Wait time.Duration
	// Held counts what is buffered and in flight.
	Held        int
	HeldWeight  int64
	Group       int
	GroupWeight int64
}

func (l Limits) normal() Limits {
	for _, n := range []*int{&l.Batch, &l.Held, &l.Group} {
		if *n == 0 {
			*n = math.MaxInt
		}
	}
	for _, n := range []*int64{&l.BatchWeight, &l.HeldWeight, &l.GroupWeight} {
		if *n == 0 {
			*n = math.MaxInt64
		}
	}
	l.Wait = min(l.Wait, Never/2) // so that no deadline overflows
	return l
}

// Kinds says which keys are in use; those that are not cost nothing.
type Kinds struct{ Groups, Lanes, Bins bool }

// Queue holds the inputs of a batcher. Use New.
type Queue struct {
	limits   Limits
	spares   *spares
	seq      int64
	last     time.Duration
	held     tally
	groups   map[string]*tally
	buffered int
	flushing bool
	sole     *bin // of a queue without bins
	bins     map[string]*bin
	due      list[*bin]
	waiting  heap[*bin]
}

// New returns an empty queue.
func New(limits Limits, kinds Kinds) *Queue {
	q := &Queue{limits: limits.normal(), spares: newSpares(kinds)}
	q.due.init()
	if kinds.Groups {
		q.groups = map[string]*tally{}
	}
	if kinds.Bins {
		q.bins = map[string]*bin{}
	} else {
		q.sole = newBin(kinds, q.spares)
	}
	return q
}

// Buffered is the number of inputs that wait to be taken.
func (q *Queue) Buffered() int { return q.buffered }

// Held is the number and weight of inputs that are buffered or in flight.
func (q *Queue) Held() (count int, weight int64) { return q.held.count, q.held.weight }

// Admit queues n, or returns the bound that keeps it out and changes nothing.
func (q *Queue) Admit(n *Node, k Keys, now time.Duration) Bound {
	group := q.groups[k.Group]
	if b := q.check(n.Weight, group); b != None {
		return b
	}
	q.held.add(1, n.Weight)
	if q.groups != nil {
		if group == nil {
			group = q.spares.tallies.get()
			group.key = k.Group
			q.groups[k.Group] = group
		}
		group.add(1, n.Weight)
	}
	n.tally, n.queued = group, true
	q.seq++
	q.last = max(q.last, now)
	n.seq, n.at = q.seq, q.last
	n.place.owner = n
	q.buffered++
	q.place(n, k)
	return None
}

func (q *Queue) check(w int64, group *tally) Bound {
	count, weight := q.held.admits(w, q.limits.Held, q.limits.HeldWeight)
	if !count {
		return Total
	}
	if !weight {
		return TotalWeight
	}
	if group == nil {
		return None
	}
	count, weight = group.admits(w, q.limits.Group, q.limits.GroupWeight)
	if !count {
		return Group
	}
	if !weight {
		return GroupWeight
	}
	return None
}

func (q *Queue) place(n *Node, k Keys) {
	b := q.binOf(k.Bin)
	b.add(n, k)
	switch {
	case b.count == 0:
	case b.stage == resting && !q.full(b):
		q.wait(b, n.at)
	case b.stage == resting, b.stage == waiting && q.full(b):
		q.offer(b)
	}
}

func (q *Queue) binOf(key string) *bin {
	if q.sole != nil {
		return q.sole
	}
	b := q.bins[key]
	if b == nil {
		b = q.spares.bins.get()
		b.key = key
		q.bins[key] = b
	}
	return b
}

// full reports whether a batch of b has no reason to wait.
func (q *Queue) full(b *bin) bool {
	return q.limits.Wait == 0 || q.flushing ||
		b.count >= q.limits.Batch || b.weight >= q.limits.BatchWeight
}

// offer puts b at the end of the bins to take from.
func (q *Queue) offer(b *bin) {
	q.rest(b)
	q.due.pushBack(&b.place)
	b.stage = due
}

func (q *Queue) wait(b *bin, oldest time.Duration) {
	q.rest(b)
	q.waiting.push(&b.deadline, int64(oldest))
	b.stage = waiting
}

func (q *Queue) rest(b *bin) {
	switch b.stage {
	case due:
		q.due.remove(&b.place)
	case waiting:
		q.waiting.remove(&b.deadline)
	}
	b.stage = resting
}

// settle gives b the stage that its inputs call for. It costs the groups of b.
func (q *Queue) settle(b *bin, now time.Duration) {
	switch {
	case b.count == 0:
		q.rest(b)
		if q.bins != nil && b.nodes == 0 && b.busy == 0 {
			delete(q.bins, b.key)
			q.spares.bins.put(b)
		}
	case q.full(b):
		q.offer(b)
	default:
		oldest := b.oldest()
		if oldest+q.limits.Wait <= now {
			q.offer(b)
			return
		}
		q.wait(b, oldest)
	}
}

// Due reports whether a bin is known to be ready without looking at the time.
func (q *Queue) Due() bool { return !q.due.empty() }

// Deadline is the earliest time at which a waiting batch becomes due, at the
// latest; it may be early when inputs have left. Never if there is none.
func (q *Queue) Deadline() time.Duration {
	if q.waiting.empty() {
		return Never
	}
	return time.Duration(q.waiting.min().key) + q.limits.Wait
}

// Ready reports whether a batch can be taken at now. It costs the groups of
// every bin whose stage it changes.
func (q *Queue) Ready(now time.Duration) bool {
	for !q.waiting.empty() && q.Deadline() <= now {
		q.settle(q.waiting.min().owner, now)
	}
	for !q.due.empty() {
		b := q.due.front()
		if q.full(b) || b.oldest()+q.limits.Wait <= now {
			return true
		}
		q.settle(b, now)
	}
	return false
}

// Flush makes everything due, now and from now on.
func (q *Queue) Flush() {
	q.flushing = true
	for !q.waiting.empty() {
		q.offer(q.waiting.min().owner)
	}
}

// Leave takes n out if it has not been taken yet.
func (q *Queue) Leave(n *Node, now time.Duration) bool {
	if !n.queued {
		return false
	}
	b := n.bin
	q.remove(n)
	q.drop(n)
	if b.count == 0 && b.stage != forming {
		q.settle(b, now)
	}
	return true
}

// remove ends n's time in the queue; it is still held.
func (q *Queue) remove(n *Node) {
	n.bin.unlink(n)
	n.queued = false
	q.buffered--
}

// drop ends the holding of n.
func (q *Queue) drop(n *Node) {
	q.held.add(-1, -n.Weight)
	if n.tally == nil {
		return
	}
	n.tally.add(-1, -n.Weight)
	if n.tally.count == 0 {
		delete(q.groups, n.tally.key)
		q.spares.tallies.put(n.tally)
	}
}

// Drain takes everything that is queued, in order of admission, and holds it
// no longer. It costs what is queued.
func (q *Queue) Drain(now time.Duration) []*Node {
	nodes := make([]*Node, 0, q.buffered)
	visit := func(n *Node) { nodes = append(nodes, n) }
	if q.sole != nil {
		q.sole.each(visit)
	}
	for _, b := range q.bins {
		b.each(visit)
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return int(a.seq - b.seq) })
	for _, n := range nodes {
		q.Leave(n, now)
	}
	return nodes
}
