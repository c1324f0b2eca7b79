package main

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/ferry"
	"ankusa.dev/ferry/internal/bare"
	"ankusa.dev/ferry/internal/queue"
)

const enqueuers = 16

// samples is how many calls per caller are kept.
const samples = 1 << 15

// enqueue times Submit alone at 16 callers, each of which then waits, untimed,
// for its answer. The median counts: on a machine that is shared, the mean is
// mostly the time for which the kernel ran somebody else. Mean and p99 stand
// beside it.
func enqueue(s settings, r *report) {
	var medians, means, tails, allocs []float64
	for range s.rounds {
		times, alloc := enqueueOnce(s.headline)
		medians = append(medians, float64(times[len(times)/2]))
		tails = append(tails, float64(times[len(times)*99/100]))
		sum := time.Duration(0)
		for _, t := range times {
			sum += t
		}
		means = append(means, float64(sum)/float64(len(times)))
		allocs = append(allocs, alloc)
	}
	r.Enqueue, r.EnqueueMean, r.EnqueueP99 = round(median(medians)), round(median(means)), round(median(tails))
	r.EnqueueAllocs = median(allocs)
	r.Spread["enqueue_ns"] = rangeOf(medians)
	r.Spread["enqueue_mean_ns"] = rangeOf(means)
	r.Spread["enqueue_allocs"] = rangeOf(allocs)
}

// enqueueOnce returns the sorted times of the calls and the allocations per
// call, of which a rest far below one in a hundred is the runtime's own.
func enqueueOnce(d time.Duration) ([]time.Duration, float64) {
	b := start(1000)
	defer stop(b)
	var halt atomic.Bool
	var calls atomic.Int64
	var wg sync.WaitGroup
	kept := make([][]time.Duration, enqueuers)
	for c := range kept {
		kept[c] = make([]time.Duration, 0, samples)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for c := range enqueuers {
		wg.Go(func() {
			answered := make(chan struct{}, 1)
			answer := func(int, error) { answered <- struct{}{} }
			n := 0
			for ; !halt.Load(); n++ {
				began := time.Now()
				err := b.Submit(n, answer)
				spent := time.Since(began)
				if err != nil {
					panic(err)
				}
				if len(kept[c]) < samples {
					kept[c] = append(kept[c], spent)
				}
				<-answered
			}
			calls.Add(int64(n))
		})
	}
	time.Sleep(d)
	halt.Store(true)
	wg.Wait()
	runtime.ReadMemStats(&after)
	times := slices.Concat(kept...)
	slices.Sort(times)
	perCall := float64(after.Mallocs-before.Mallocs) / float64(calls.Load())
	return times, math.Floor(perCall*100) / 100
}

// rest is how long the process sleeps before a call in the rested figures.
const rest = 50 * time.Microsecond

// idle times a lone caller's calls to an empty batcher whose worker sleeps, and
// takes off what run itself needs. After a rest of the whole process most of
// the time is the waking of a thread, so a bare channel worker, which has to
// wake one as well, is shown beside it.
func idle(s settings, r *report) {
	var added, rested, handoff []float64
	for range s.rounds {
		b, c, run := start(1000), bare.NewChannel(copyAll), echo()
		through := func(in int) { do(context.Background(), b, in) }
		direct := func(in int) { _, _ = run(context.Background(), []int{in}) }
		added = append(added, lone(20*s.calls, 0, through)-lone(20*s.calls, 0, direct))
		still := lone(s.calls, rest, direct)
		rested = append(rested, lone(s.calls, rest, through)-still)
		handoff = append(handoff, lone(s.calls, rest, func(in int) { c.Do(in) })-still)
		c.Close()
		stop(b)
	}
	r.Idle = round(median(added))
	r.IdleRested, r.IdleHandoff = round(median(rested)), round(median(handoff))
	r.Spread["idle_added_ns"] = rangeOf(added)
	r.Spread["idle_rested_added_ns"] = rangeOf(rested)
	r.Spread["idle_rested_handoff_ns"] = rangeOf(handoff)
}

// lone is the median time of calls with a rest before each, in ns.
func lone(calls int, rest time.Duration, do func(int)) float64 {
	times := make([]time.Duration, calls)
	for i := range times {
		if rest > 0 {
			time.Sleep(rest)
		}
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
	w := drive(callers, d, func(int) {
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
	return float64(w.wall) / float64(w.calls)
}
