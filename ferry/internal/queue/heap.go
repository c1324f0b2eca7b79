package queue

// slot is a place in a heap, embedded by value in whatever is ordered. index is
// one above the position, so that the zero slot is in no heap.
type slot[T any] struct {
	key   int64
	index int
	owner T
}

func (s *slot[T]) placed() bool { return s.index > 0 }

// heap is a binary heap of slots, smallest key first.
type heap[T any] struct{ slots []*slot[T] }

func (h *heap[T]) empty() bool { return len(h.slots) == 0 }

func (h *heap[T]) min() *slot[T] { return h.slots[0] }

func (h *heap[T]) push(s *slot[T], key int64) {
	s.key = key
	h.slots = append(h.slots, s)
	s.index = len(h.slots)
	h.up(len(h.slots) - 1)
}

func (h *heap[T]) remove(s *slot[T]) {
	i, last := s.index-1, len(h.slots)-1
	h.swap(i, last)
	h.slots[last] = nil
	h.slots = h.slots[:last]
	s.index = 0
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h *heap[T]) swap(i, j int) {
	h.slots[i], h.slots[j] = h.slots[j], h.slots[i]
	h.slots[i].index, h.slots[j].index = i+1, j+1
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h.slots[parent].key <= h.slots[i].key {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.slots) {
			return
		}
		if right := child + 1; right < len(h.slots) && h.slots[right].key < h.slots[child].key {
			child = right
		}
		if h.slots[i].key <= h.slots[child].key {
			return
		}
		h.swap(i, child)
		i = child
	}
}
