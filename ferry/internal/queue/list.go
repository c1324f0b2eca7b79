package queue

// link is a place in a list, embedded by value in whatever is listed.
type link[T any] struct {
	prev, next *link[T]
	owner      T
}

// list is an intrusive ring around root; it allocates nothing. An owner is in
// at most one list per link.
type list[T any] struct {
	root link[T]
	size int
}

func (l *list[T]) init() {
	l.root.prev, l.root.next = &l.root, &l.root
}

func (l *list[T]) empty() bool { return l.size == 0 }

func (l *list[T]) front() T { return l.root.next.owner }

func (l *list[T]) pushBack(k *link[T]) {
	tail := l.root.prev
	k.prev, k.next = tail, &l.root
	tail.next, l.root.prev = k, k
	l.size++
}

func (l *list[T]) remove(k *link[T]) {
	k.prev.next, k.next.prev = k.next, k.prev
	k.prev, k.next = nil, nil
	l.size--
}
