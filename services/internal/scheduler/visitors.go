package scheduler

import "sync"

// visitors counts the streams of a term, so that its end can wait for them and no other can enter.
type visitors struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{}
}

func newVisitors() *visitors { return &visitors{empty: make(chan struct{})} }

// enter is false once the term is over.
func (v *visitors) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.n++
	}
	return !v.closed
}

func (v *visitors) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n--; v.n == 0 && v.closed {
		close(v.empty)
	}
}

// close lets nobody in any more and waits until all have left.
func (v *visitors) close() {
	v.mu.Lock()
	v.closed = true
	none := v.n == 0
	v.mu.Unlock()
	if !none {
		<-v.empty
	}
}
