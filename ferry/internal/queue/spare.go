package queue

// spareLimit is how many of a kind are kept: keys that come and go cost no
// allocation, and those of a burst are given back.
const spareLimit = 256

// spare keeps what is empty and out of use for another key.
type spare[T any] struct {
	make func() T
	free []T
}

func (s *spare[T]) get() T {
	if len(s.free) == 0 {
		return s.make()
	}
	last := len(s.free) - 1
	x := s.free[last]
	s.free = s.free[:last]
	return x
}

func (s *spare[T]) put(x T) {
	if len(s.free) < spareLimit {
		s.free = append(s.free, x)
	}
}

// spares are shared by the bins of a queue.
type spares struct {
	tallies spare[*tally]
	turns   spare[*turn]
	lanes   spare[*lane]
	bins    spare[*bin]
}

func newSpares(kinds Kinds) *spares {
	s := &spares{
		tallies: spare[*tally]{make: func() *tally { return &tally{} }},
		turns:   spare[*turn]{make: newTurn},
		lanes:   spare[*lane]{make: newLane},
	}
	s.bins.make = func() *bin { return newBin(kinds, s) }
	return s
}
