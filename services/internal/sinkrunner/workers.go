package sinkrunner

import "sync"

// workers run attempts in goroutines that are kept: an attempt needs a deep stack, which a new goroutine would grow anew.
type workers struct {
	run  func(*lease, found)
	jobs chan job
	all  sync.WaitGroup

	mu   sync.Mutex
	idle int
	keep int // idle ones at most
}

type job struct {
	lease *lease
	found found
}

func newWorkers(keep int, run func(*lease, found)) *workers {
	return &workers{run: run, jobs: make(chan job), keep: keep}
}

// do runs an attempt at once, in a goroutine of its own or one that is idle.
func (w *workers) do(l *lease, f found) {
	select {
	case w.jobs <- job{l, f}:
	default:
		w.all.Go(func() { w.work(l, f) })
	}
}

func (w *workers) work(l *lease, f found) {
	w.run(l, f)
	for w.rest() {
		next, more := <-w.jobs
		w.wake()
		if !more {
			return
		}
		w.run(next.lease, next.found)
	}
}

// rest says whether there is room for one more that is idle.
func (w *workers) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == w.keep {
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

// close ends the idle ones. Nothing is done any more.
func (w *workers) close() {
	close(w.jobs)
	w.all.Wait()
}
