package accept

import (
	"sync"

	"ankusa.dev/services/internal/store"
)

// slot is what one commit of a partition has to itself while it runs.
type slot struct {
	writer   Writer
	incoming []store.Incoming
	places   []int // of the incoming in the batch
}

// slots of one partition that are free. The one given back last is taken first, so that counters come to be for as many
// writers only as have had to commit at once.
type slots struct {
	mu   sync.Mutex
	free []*slot
}

// newSlots has a slot for each writer. The first writer's is taken first.
func newSlots(writers []Writer) *slots {
	s := &slots{free: make([]*slot, len(writers))}
	for i, w := range writers {
		s.free[len(writers)-1-i] = &slot{writer: w}
	}
	return s
}

// take is for whoever knows that not all are taken.
func (s *slots) take() *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	first := s.free[last]
	s.free = s.free[:last]
	return first
}

func (s *slots) give(back *slot) {
	clear(back.incoming)
	back.incoming, back.places = back.incoming[:0], back.places[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, back)
}
