package core

// node is a value's place in a ring. The zero value is outside.
type node[T any] struct {
	prev, next *node[T]
	value      T
	in         bool
}

// ring is a round robin: next hands out its members in turn.
type ring[T any] struct {
	head *node[T]
	n    int
}

// add puts a member at the end of the turn; one that is inside stays where it is.
func (r *ring[T]) add(m *node[T]) {
	if m.in {
		return
	}
	m.in = true
	r.n++
	if r.head == nil {
		m.prev, m.next, r.head = m, m, m
		return
	}
	tail := r.head.prev
	m.prev, m.next = tail, r.head
	tail.next, r.head.prev = m, m
}

func (r *ring[T]) remove(m *node[T]) {
	if !m.in {
		return
	}
	m.in = false
	r.n--
	if r.n == 0 {
		r.head = nil
	} else {
		m.prev.next, m.next.prev = m.next, m.prev
		if r.head == m {
			r.head = m.next
		}
	}
	m.prev, m.next = nil, nil
}

// set adds or removes.
func (r *ring[T]) set(m *node[T], in bool) {
	if in {
		r.add(m)
		return
	}
	r.remove(m)
}

// next is the member whose turn it is; the turn passes on. The ring must have one.
func (r *ring[T]) next() T {
	m := r.head
	r.head = m.next
	return m.value
}

// list is the leased claims in the order of their deadlines, linked through the claims.
type list struct{ head, tail *claim }

func (l *list) first() *claim { return l.head }

// insert keeps the order; deadlines mostly come in order, so the search from the end is short.
func (l *list) insert(c *claim) {
	at := l.tail
	for at != nil && at.deadline > c.deadline {
		at = at.before
	}
	c.before = at
	if at == nil {
		c.behind, l.head = l.head, c
	} else {
		c.behind, at.behind = at.behind, c
	}
	if c.behind == nil {
		l.tail = c
	} else {
		c.behind.before = c
	}
}

func (l *list) remove(c *claim) {
	if c.before == nil {
		l.head = c.behind
	} else {
		c.before.behind = c.behind
	}
	if c.behind == nil {
		l.tail = c.before
	} else {
		c.behind.before = c.before
	}
	c.before, c.behind = nil, nil
}

// queue is first in, first out, with a way back to the front.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }
func (q *queue[T]) push(v T) { q.items = append(q.items, v) }

func (q *queue[T]) pop() T {
	v := q.items[q.head]
	clear(q.items[q.head : q.head+1])
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head > 64 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v
}

// unpop puts one in front of all others.
func (q *queue[T]) unpop(v T) {
	if q.head > 0 {
		q.head--
		q.items[q.head] = v
		return
	}
	q.items = append([]T{v}, q.items...)
}
