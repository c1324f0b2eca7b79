package ferry

import (
	"errors"
	"time"
)

// Metrics is told what happens in a Batcher. Its methods are called often, from
// many goroutines, without a lock held; they must be quick and safe for that.
type Metrics interface {
	// Add adds delta to c. A gauge's deltas may come slightly out of order, so
	// that it may be off while inputs move; it is exact at rest.
	Add(c Counter, delta int64)
	// Observe records one batch. It is called when run has ended and before the
	// callers have their answers.
	Observe(BatchReport)
}

// Counter names what is counted. Buffered, InFlight and Running are gauges, the
// others only rise.
type Counter uint8

// The counters. Buffered and InFlight count inputs, Running counts batches.
// Admitted is the sum of Succeeded, Failed, Left, Abandoned, Buffered and
// InFlight.
const (
	Admitted  Counter = iota
	Rejected          // by a bound
	Refused           // after Close
	Left              // callers gone before their input was taken
	Abandoned         // admitted, and given up by Close
	Succeeded         // answered without an error
	Failed            // answered with an error
	Defects           // batches that ended in a panic or a wrong number of results
	Buffered
	InFlight
	Running
	counters
)

var counterNames = [counters]string{
	"admitted", "rejected", "refused", "left", "abandoned", "succeeded", "failed", "defects",
	"buffered", "in_flight", "running",
}

// String returns the counter's name in snake case.
func (c Counter) String() string {
	if c < counters {
		return counterNames[c]
	}
	return "unknown"
}

// BatchReport describes one batch that has run.
type BatchReport struct {
	Size   int
	Weight int64
	// Waited is the time from the admission of its oldest input to the call of
	// run, which took Ran.
	Waited, Ran time.Duration
	// Err is the error for the whole batch, if there was one.
	Err error
}

// Stats is a consistent picture of what a Batcher holds.
type Stats struct {
	Buffered, InFlight int
	// Weight is that of both together.
	Weight int64
}

func (b *Batcher[In, Out]) count(c Counter, delta int) {
	if b.config.Metrics != nil && delta != 0 {
		b.config.Metrics.Add(c, int64(delta))
	}
}

// report tells the metrics about the batch that w has run.
func (b *Batcher[In, Out]) report(w *worker[In, Out]) {
	size := len(w.batch.Nodes)
	failed := size
	if w.err == nil {
		failed = 0
		for _, r := range w.results {
			if r.Err != nil {
				failed++
			}
		}
	}
	if errors.Is(w.err, ErrDefect) {
		b.count(Defects, 1)
	}
	b.count(Succeeded, size-failed)
	b.count(Failed, failed)
	b.count(InFlight, -size)
	b.count(Running, -1)
	oldest := w.batch.Nodes[0].At()
	for _, n := range w.batch.Nodes {
		oldest = min(oldest, n.At())
	}
	b.config.Metrics.Observe(BatchReport{
		Size: size, Weight: w.batch.Weight, Waited: w.began - oldest, Ran: b.now() - w.began, Err: w.err,
	})
}
