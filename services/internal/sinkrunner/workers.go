package sinkrunner

import (
	"sync"
	"time"
)

// idleTime is how long a worker waits for another attempt.
const idleTime = 10 * time.Second

// workers run attempts in goroutines that are kept for a while: an attempt needs a deep stack, which a new goroutine
// would grow anew.
type workers struct {
	run  func(*lease, found)
	jobs chan job
	done chan struct{} // closed with closed
	all  sync.WaitGroup

	mu     sync.Mutex
	idle   int
	keep   int // idle ones at most
	closed bool
}

type job struct {
	lease *lease
	found found
}

func newWorkers(keep int, run func(*lease, found)) *workers {
	return &workers{run: run, jobs: make(chan job), done: make(chan struct{}), keep: keep}
}

// do runs an attempt at once, in a goroutine of its own or one that is idle. It answers false, and runs nothing, once the
// workers are closed.
func (w *workers) do(l *lease, f found) bool {
	select {
	case w.jobs <- job{l, f}:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.all.Go(func() { w.work(l, f) })
	return true
}

func (w *workers) work(l *lease, f found) {
	w.run(l, f)
	idle := time.NewTimer(idleTime)
	defer idle.Stop()
	for w.rest() {
		idle.Reset(idleTime)
		next, more := w.next(idle.C)
		if !more {
			return
		}
		w.run(next.lease, next.found)
	}
}

// next waits for another attempt, until the worker has been idle for long or all are closed.
func (w *workers) next(long <-chan time.Time) (j job, more bool) {
	defer w.wake()
	select {
	case j = <-w.jobs:
		return j, true
	case <-long:
	case <-w.done:
	}
	return job{}, false
}

// rest says whether there is room for one more that is idle.
func (w *workers) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == w.keep || w.closed {
		return false
	}
	w.idle++
	return true
}

func (w *workers) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle--
}

// close ends the idle ones, and waits for those that run.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	close(w.done)
	w.all.Wait()
}
