package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/ferry"
	"ankusa.dev/ferry/internal/queue"
)

const enqueuers = 16

// enqueue times Submit alone at 16 callers, each of which then waits, untimed,
// for its answer.
func enqueue(s settings, r *report) {
	clock := clockCost()
	var means, allocs []float64
	for range s.rounds {
		mean, alloc := enqueueOnce(s.headline)
		means, allocs = append(means, mean-clock), append(allocs, alloc)
	}
	r.Enqueue, r.EnqueueAllocs = round(median(means)), round(median(allocs))
	r.Spread["enqueue_ns"] = rangeOf(means)
	r.Spread["enqueue_allocs"] = rangeOf(allocs)
	r.Limits["clock_ns_subtracted"] = round(clock)
}

func enqueueOnce(d time.Duration) (mean, allocs float64) {
	b := start(1000)
	defer stop(b)
	var halt atomic.Bool
	var total, calls atomic.Int64
	var wg sync.WaitGroup
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range enqueuers {
		wg.Go(func() {
			answered := make(chan struct{}, 1)
			answer := func(int, error) { answered <- struct{}{} }
			var spent time.Duration
			n := 0
			for ; !halt.Load(); n++ {
				began := time.Now()
				err := b.Submit(n, answer)
				spent += time.Since(began)
				if err != nil {
					panic(err)
				}
				<-answered
			}
			total.Add(int64(spent))
			calls.Add(int64(n))
		})
	}
	time.Sleep(d)
	halt.Store(true)
	wg.Wait()
	runtime.ReadMemStats(&after)
	n := float64(calls.Load())
	return float64(total.Load()) / n, float64(int64(float64(after.Mallocs-before.Mallocs)/n*100)) / 100
}

// clockCost is what one measurement of nothing reads, in ns.
func clockCost() float64 {
	var spent time.Duration
	const n = 1 << 18
	for range n {
		began := time.Now()
		spent += time.Since(began)
	}
	return float64(spent) / n
}

// idle times a lone call to a batcher that has been at rest, and to run itself.
func idle(s settings, r *report) {
	var added []float64
	for range s.rounds {
		b := start(1000)
		run := echo()
		through := lone(s.calls, func(in int) { do(b, context.Background(), in) })
		stop(b)
		direct := lone(s.calls, func(in int) { _, _ = run(context.Background(), []int{in}) })
		added = append(added, through-direct)
	}
	r.Idle = round(median(added))
	r.Spread["idle_added_ns"] = rangeOf(added)
}

// lone is the median time of calls between which the process is idle, in ns.
func lone(calls int, do func(int)) float64 {
	times := make([]time.Duration, calls)
	for i := range times {
		time.Sleep(50 * time.Microsecond)
		began := time.Now()
		do(i)
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return float64(times[calls/2])
}

// lock measures what the admission lock costs: the queue's admission without
// it, with it, and with it fought over.
func lock(s settings, r *report) {
	for name, measure := range map[string]func(time.Duration) float64{
		"none_1_caller":    func(d time.Duration) float64 { return admissions(1, d, nil) },
		"mutex_1_caller":   func(d time.Duration) float64 { return admissions(1, d, &sync.Mutex{}) },
		"mutex_16_callers": func(d time.Duration) float64 { return admissions(enqueuers, d, &sync.Mutex{}) },
	} {
		var xs []float64
		for range s.rounds {
			xs = append(xs, measure(s.cell))
		}
		r.Lock[name] = round(median(xs))
		r.Spread["lock_"+name] = rangeOf(xs)
	}
}

// admissions is the time per admission in ns, with nothing else in the loop
// but the leaving that makes room.
func admissions(callers int, d time.Duration, mu *sync.Mutex) float64 {
	c := ferry.Default[int]()
	q := queue.New(queue.Limits{Batch: c.MaxBatch, Held: c.MaxQueue}, queue.Kinds{})
	nodes := sync.Pool{New: func() any { return &queue.Node{} }}
	perSecond := rate(callers, d, func(int) {
		n := nodes.Get().(*queue.Node)
		if mu != nil {
			mu.Lock()
		}
		q.Admit(n, queue.Keys{}, 0)
		q.Leave(n, 0)
		if mu != nil {
			mu.Unlock()
		}
		nodes.Put(n)
	})
	return 1e9 / perSecond
}
