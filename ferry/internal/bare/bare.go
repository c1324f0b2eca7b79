// Package bare holds the plain batchers that ferry is measured beside. They
// have no bounds, no cancellation, no close with a deadline and no defence
// against what run does.
package bare

import (
	"runtime"
	"sync"
)

type waiter[In, Out any] struct {
	in       In
	out      Out
	answered chan struct{}
}

// Slice is a mutex, a slice and one worker; its waiters are used again.
type Slice[In, Out any] struct {
	mu      sync.Mutex
	pending []*waiter[In, Out]
	spare   []*waiter[In, Out]
	wake    chan struct{}
	waiters sync.Pool
	done    chan struct{}
}

// NewSlice starts a batcher whose batches are at most limit. run writes the
// answers to out, which is as long as the batch. With yield the worker lets
// others run when it wakes, so that more of them come along.
func NewSlice[In, Out any](limit int, yield bool, run func(batch []In, out []Out)) *Slice[In, Out] {
	s := &Slice[In, Out]{wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.waiters.New = func() any { return &waiter[In, Out]{answered: make(chan struct{}, 1)} }
	go s.work(limit, yield, run)
	return s
}

// Do returns the answer for in.
func (s *Slice[In, Out]) Do(in In) Out {
	w := s.waiters.Get().(*waiter[In, Out])
	w.in = in
	s.mu.Lock()
	s.pending = append(s.pending, w)
	first := len(s.pending) == 1
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	<-w.answered
	out := w.out
	s.waiters.Put(w)
	return out
}

// Close ends the worker. Nobody may call Do any more.
func (s *Slice[In, Out]) Close() {
	close(s.wake)
	<-s.done
}

func (s *Slice[In, Out]) work(limit int, yield bool, run func([]In, []Out)) {
	defer close(s.done)
	inputs, outputs := make([]In, 0, limit), make([]Out, limit)
	for range s.wake {
		if yield {
			runtime.Gosched()
		}
		s.mu.Lock()
		batch := s.pending
		s.pending, s.spare = s.spare[:0], batch
		s.mu.Unlock()
		for len(batch) > 0 {
			n := min(limit, len(batch))
			inputs = inputs[:0]
			for _, w := range batch[:n] {
				inputs = append(inputs, w.in)
			}
			run(inputs, outputs[:n])
			for i, w := range batch[:n] {
				w.out = outputs[i]
				w.answered <- struct{}{}
			}
			batch = batch[n:]
		}
	}
}

// Channel is one worker that takes one input at a time.
type Channel[In, Out any] struct {
	inputs  chan *waiter[In, Out]
	waiters sync.Pool
	done    chan struct{}
}

// NewChannel starts a worker that calls run for each input alone.
func NewChannel[In, Out any](run func(batch []In, out []Out)) *Channel[In, Out] {
	c := &Channel[In, Out]{inputs: make(chan *waiter[In, Out], 1024), done: make(chan struct{})}
	c.waiters.New = func() any { return &waiter[In, Out]{answered: make(chan struct{}, 1)} }
	go func() {
		defer close(c.done)
		inputs, outputs := make([]In, 1), make([]Out, 1)
		for w := range c.inputs {
			inputs[0] = w.in
			run(inputs, outputs)
			w.out = outputs[0]
			w.answered <- struct{}{}
		}
	}()
	return c
}

// Do returns the answer for in.
func (c *Channel[In, Out]) Do(in In) Out {
	w := c.waiters.Get().(*waiter[In, Out])
	w.in = in
	c.inputs <- w
	<-w.answered
	out := w.out
	c.waiters.Put(w)
	return out
}

// Close ends the worker. Nobody may call Do any more.
func (c *Channel[In, Out]) Close() {
	close(c.inputs)
	<-c.done
}
