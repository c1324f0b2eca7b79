package queue

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// script turns fuzzed bytes into calls, and says what must hold between them.
type script struct {
	t       *testing.T
	bytes   []byte
	q       *Queue
	now     time.Duration
	nodes   []*Node // all that were ever admitted
	runs    []*Batch
	forming *Batch
	last    map[string]int64 // seq that a lane gave last
}

func (s *script) next(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

func (s *script) play() {
	s.q = New(Limits{
		Batch: 1 + s.next(5), BatchWeight: int64(s.next(2) * 8), Wait: time.Duration(s.next(2) * 10),
		Held: 5 + s.next(40), HeldWeight: int64(s.next(2) * 60), Group: s.next(2) * 7, GroupWeight: int64(s.next(2) * 20),
	}, Kinds{Groups: s.next(2) == 1, Lanes: s.next(2) == 1, Bins: s.next(2) == 1})
	s.last = map[string]int64{}
	for len(s.bytes) > 0 {
		switch s.next(8) {
		case 0, 1, 2, 3:
			s.admit()
		case 4:
			s.take()
		case 5:
			s.finish()
		case 6:
			s.leave()
		case 7:
			s.now += time.Duration(s.next(12))
		}
		s.verify()
	}
	s.end()
}

func (s *script) admit() {
	n := &Node{Weight: int64(s.next(12))}
	k := Keys{
		Group: fmt.Sprint(s.next(3)), Lane: fmt.Sprint(s.next(3)), Bin: fmt.Sprint(s.next(2)), HasLane: s.next(2) == 1,
	}
	before := s.q.held
	if s.q.Admit(n, k, s.now) == None {
		s.nodes = append(s.nodes, n)
	} else if s.q.held != before {
		s.t.Fatal("a rejection changed what is held")
	}
}

func (s *script) take() {
	if !s.q.Ready(s.now) {
		for _, b := range s.bins() {
			if b.count > 0 && (s.q.full(b) || b.oldest()+s.q.limits.Wait <= s.now) {
				s.t.Fatal("a batch is due and not ready")
			}
		}
		return
	}
	batch := &Batch{}
	s.forming = batch
	for s.q.Take(batch, 1+s.next(3)) {
		s.verify()
	}
	s.q.Seal(batch, s.now)
	s.inspect(batch)
	s.runs, s.forming = append(s.runs, batch), nil
}

func (s *script) inspect(batch *Batch) {
	if len(batch.Nodes) == 0 || len(batch.Nodes) > s.q.limits.Batch {
		s.t.Fatalf("a batch of %d", len(batch.Nodes))
	}
	if batch.Weight > s.q.limits.BatchWeight && len(batch.Nodes) > 1 {
		s.t.Fatalf("a batch of weight %d", batch.Weight)
	}
	for _, n := range batch.Nodes {
		if n.bin != batch.bin {
			s.t.Fatal("two bins in a batch")
		}
		if n.lane == nil {
			continue
		}
		key := n.bin.key + "/" + n.lane.key
		if n.seq <= s.last[key] {
			s.t.Fatal("a lane out of order")
		}
		s.last[key] = n.seq
		for _, other := range s.runs {
			for _, o := range other.Nodes {
				if o.lane == n.lane {
					s.t.Fatal("a lane in two batches")
				}
			}
		}
	}
}

func (s *script) finish() {
	if len(s.runs) == 0 {
		return
	}
	i := s.next(len(s.runs))
	batch := s.runs[i]
	s.runs = append(s.runs[:i], s.runs[i+1:]...)
	s.q.Finish(batch)
	if batch.HasLanes() {
		s.q.Release(batch, s.now)
	}
	batch.Reset()
}

func (s *script) leave() {
	if len(s.nodes) == 0 {
		return
	}
	n := s.nodes[s.next(len(s.nodes))]
	if was := n.queued; s.q.Leave(n, s.now) != was {
		s.t.Fatal("leaving must succeed exactly while queued")
	}
}

func (s *script) bins() []*bin {
	if s.q.sole != nil {
		return []*bin{s.q.sole}
	}
	var all []*bin
	for _, b := range s.q.bins {
		all = append(all, b)
	}
	return all
}

// verify counts everything again.
func (s *script) verify() {
	var held tally
	groups := map[string]tally{}
	hold := func(n *Node) {
		held.add(1, n.Weight)
		if n.tally != nil {
			g := groups[n.tally.key]
			g.add(1, n.Weight)
			groups[n.tally.key] = g
		}
	}
	buffered := 0
	for _, b := range s.bins() {
		count, weight := 0, int64(0)
		b.each(func(n *Node) {
			buffered++
			hold(n)
			if n.lane == nil || !n.lane.busy {
				count++
				weight += n.Weight
			}
		})
		if b.count != count || b.weight != weight {
			s.t.Fatalf("eligible %d (%d), recounted %d (%d)", b.count, b.weight, count, weight)
		}
		s.verifyStage(b)
	}
	if buffered != s.q.buffered {
		s.t.Fatalf("buffered %d, recounted %d", s.q.buffered, buffered)
	}
	batches := s.runs
	if s.forming != nil {
		batches = append(slices.Clone(s.runs), s.forming)
	}
	for _, batch := range batches {
		for _, n := range batch.Nodes {
			hold(n)
		}
	}
	if held != s.q.held {
		s.t.Fatalf("held %+v, recounted %+v", s.q.held, held)
	}
	s.verifyGroups(groups)
}

func (s *script) verifyGroups(groups map[string]tally) {
	if len(groups) != len(s.q.groups) {
		s.t.Fatalf("%d groups, recounted %d", len(s.q.groups), len(groups))
	}
	for key, g := range groups {
		got := s.q.groups[key]
		if got.count != g.count || got.weight != g.weight {
			s.t.Fatalf("group %q: %+v, recounted %+v", key, got, g)
		}
		if g.count > s.q.limits.Group || g.count > 1 && g.weight > s.q.limits.GroupWeight {
			s.t.Fatalf("group %q is beyond its bounds: %+v", key, g)
		}
	}
}

func (s *script) verifyStage(b *bin) {
	switch {
	case b.stage == forming:
	case (b.count == 0) != (b.stage == resting):
		s.t.Fatalf("stage %d with %d eligible", b.stage, b.count)
	case b.stage == waiting && s.q.full(b):
		s.t.Fatal("a full bin waits")
	case b.stage == waiting && time.Duration(b.deadline.key) > b.oldest():
		s.t.Fatal("a bin would wake after its oldest input's deadline")
	}
	for _, t := range b.turns {
		if t.ring == t.empty() || t.nodes == 0 {
			s.t.Fatal("the ring disagrees with the turns")
		}
	}
}

// end drains: nothing may stay behind.
func (s *script) end() {
	for len(s.runs) > 0 {
		s.finish()
	}
	nodes := s.q.Drain(s.now)
	for i := range nodes[:max(0, len(nodes)-1)] {
		if nodes[i].seq >= nodes[i+1].seq {
			s.t.Fatal("drained out of order")
		}
	}
	if s.q.buffered != 0 || s.q.held.count != 0 || s.q.held.weight != 0 || len(s.q.groups) != 0 || len(s.q.bins) != 0 {
		s.t.Fatalf("left behind: %+v", s.q)
	}
	if b := s.q.sole; b != nil && (len(b.lanes) != 0 || len(b.turns) != 0) {
		s.t.Fatal("lanes or turns left behind")
	}
	if s.q.Ready(math.MaxInt64 - s.q.limits.Wait) {
		s.t.Fatal("an empty queue is ready")
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range byte(32) {
		var bytes []byte
		x := uint32(seed)*2654435761 + 1
		for range 400 {
			x = x*1664525 + 1013904223
			bytes = append(bytes, byte(x>>24))
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		(&script{t: t, bytes: bytes}).play()
	})
}

func TestGroupsThatWaitShareEveryBatchEqually(t *testing.T) {
	q := New(Limits{Batch: 9}, Kinds{Groups: true})
	for i := range 300 {
		q.Admit(&Node{}, Keys{Group: "heavy"}, 0)
		if i < 30 {
			q.Admit(&Node{}, Keys{Group: "light"}, 0)
			q.Admit(&Node{}, Keys{Group: "other"}, 0)
		}
	}
	for range 10 {
		share := map[string]int{}
		batch := &Batch{}
		q.Ready(0)
		q.Take(batch, 64)
		q.Seal(batch, 0)
		for _, n := range batch.Nodes {
			share[n.turn.key]++
		}
		if share["heavy"] != 3 || share["light"] != 3 || share["other"] != 3 {
			t.Fatalf("shares %v", share)
		}
	}
}

func TestWeightsAtTheEndOfTheirRangeDoNotOverflow(t *testing.T) {
	q := New(Limits{BatchWeight: math.MaxInt64}, Kinds{})
	if got := q.Admit(&Node{Weight: math.MaxInt64}, Keys{}, 0); got != None {
		t.Fatalf("the first is kept out by %d", got)
	}
	if got := q.Admit(&Node{Weight: 1}, Keys{}, 0); got != TotalWeight {
		t.Fatalf("a sum beyond the range: %d", got)
	}
	if got := q.Admit(&Node{}, Keys{}, 0); got != None {
		t.Fatalf("no weight at all: %d", got)
	}
}
