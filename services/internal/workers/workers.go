// Package workers runs jobs in goroutines that are kept for a while: a job that goes deep needs a large stack, which a new
// goroutine would grow anew.
package workers

import (
	"sync"
	"time"
)

// idleTime is how long a goroutine waits for another job.
const idleTime = 10 * time.Second

// Workers run jobs of one kind. All methods are safe for concurrent use.
type Workers[Job any] struct {
	run  func(Job)
	keep int
	all  sync.WaitGroup

	mu     sync.Mutex
	idle   []worker[Job] // the one that has been idle for longest first
	aging  *time.Timer   // looks after the idle ones; nil while there is none
	closed bool
}

// worker is a goroutine that waits for a job.
type worker[Job any] struct {
	jobs  chan Job // of one place, so that nobody waits for it to wake
	since time.Time
}

// New keeps at most keep goroutines that have nothing to do.
func New[Job any](keep int, run func(Job)) *Workers[Job] {
	return &Workers[Job]{run: run, keep: keep}
}

// Do runs a job at once, in the goroutine that became idle last or in a new one. It answers false, and runs nothing, once
// the workers are closed.
func (w *Workers[Job]) Do(j Job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch n := len(w.idle); {
	case w.closed:
		return false
	case n > 0:
		w.idle[n-1].jobs <- j
		w.idle[n-1] = worker[Job]{}
		w.idle = w.idle[:n-1]
	default:
		w.all.Go(func() { w.work(j) })
	}
	return true
}

func (w *Workers[Job]) work(j Job) {
	jobs := make(chan Job, 1)
	for more := true; more; j, more = <-jobs {
		w.run(j)
		if !w.rest(jobs) {
			return
		}
	}
}

// rest says whether there is room for one more that is idle.
func (w *Workers[Job]) rest(jobs chan Job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.idle) >= w.keep || w.closed {
		return false
	}
	w.idle = append(w.idle, worker[Job]{jobs, time.Now()})
	if w.aging == nil {
		w.aging = time.AfterFunc(idleTime, w.age)
	}
	return true
}

// age ends those that have been idle for long.
func (w *Workers[Job]) age() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, now := 0, time.Now()
	for n < len(w.idle) && now.Sub(w.idle[n].since) >= idleTime {
		close(w.idle[n].jobs)
		n++
	}
	kept := copy(w.idle, w.idle[n:])
	clear(w.idle[kept:])
	w.idle = w.idle[:kept]
	w.aging = nil
	if kept > 0 {
		w.aging = time.AfterFunc(w.idle[0].since.Add(idleTime).Sub(now), w.age)
	}
}

// Closed says whether no job is taken any more.
func (w *Workers[Job]) Closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Close ends the idle ones, and waits for those that run. No job is taken any more.
func (w *Workers[Job]) Close() {
	w.mu.Lock()
	w.closed = true
	for i := range w.idle {
		close(w.idle[i].jobs)
	}
	w.idle = nil
	if w.aging != nil {
		w.aging.Stop()
	}
	w.mu.Unlock()
	w.all.Wait()
}
