package ferry_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ankusa.dev/ferry"
	"ankusa.dev/ferry/internal/bare"
)

// echo answers every input with itself and reuses its results: one slot.
func echo() ferry.Run[int, int] {
	var results []ferry.Result[int]
	return func(_ context.Context, batch []int) ([]ferry.Result[int], error) {
		results = results[:0]
		for _, in := range batch {
			results = append(results, ferry.Result[int]{Value: in})
		}
		return results, nil
	}
}

func bareEcho(batch, out []int) { copy(out, batch) }

// all is for share: every goroutine does the same.
func all(do func(int)) func() func(int) { return func() func(int) { return do } }

// share makes b.N calls from that many goroutines, each with a function of its
// own.
func share(b *testing.B, callers int, caller func() func(int)) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			do := caller()
			for i := c; i < b.N; i += callers {
				do(i)
			}
		})
	}
	wg.Wait()
}

func benchConfig(batch int) ferry.Config[int] {
	c := ferry.Default[int]()
	c.MaxBatch = batch
	c.MaxQueue = 1 << 20
	return c
}

func newBench(b *testing.B, c ferry.Config[int]) *ferry.Batcher[int, int] {
	b.Helper()
	batcher, err := ferry.New(c, echo())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = batcher.Close(context.Background()) })
	return batcher
}

func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d/channel", callers), func(b *testing.B) {
			c := bare.NewChannel(bareEcho)
			defer c.Close()
			share(b, callers, all(func(i int) { c.Do(i) }))
		})
		for _, batch := range []int{1, 10, 1000} {
			b.Run(fmt.Sprintf("callers=%d/batch=%d/bare", callers, batch), func(b *testing.B) {
				s := bare.NewSlice(batch, false, bareEcho)
				defer s.Close()
				share(b, callers, all(func(i int) { s.Do(i) }))
			})
			b.Run(fmt.Sprintf("callers=%d/batch=%d/ferry", callers, batch), func(b *testing.B) {
				batcher := newBench(b, benchConfig(batch))
				share(b, callers, all(func(i int) {
					if _, err := batcher.Do(context.Background(), i); err != nil {
						panic(err)
					}
				}))
			})
		}
	}
}

// BenchmarkDoKeyed shows what cancellable contexts, groups, lanes and a wait
// cost, at 256 callers and batches of 1000.
func BenchmarkDoKeyed(b *testing.B) {
	key := func(in int) string { return strconv.Itoa(in % 16) } // below 100: no allocation
	for name, set := range map[string]func(*ferry.Config[int]){
		"plain":   func(*ferry.Config[int]) {},
		"groups":  func(c *ferry.Config[int]) { c.Group, c.MaxQueuePerGroup = key, 1<<16 },
		"lanes":   func(c *ferry.Config[int]) { c.Lane = func(in int) (string, bool) { return key(in), true } },
		"bins":    func(c *ferry.Config[int]) { c.Bin = key },
		"metrics": func(c *ferry.Config[int]) { c.Metrics = &sums{} },
		"weights": func(c *ferry.Config[int]) {
			c.Weight = func(int) int64 { return 512 }
			c.MaxBatchWeight, c.MaxQueueWeight = 1<<20, 1<<30
		},
	} {
		b.Run(name, func(b *testing.B) {
			c := benchConfig(1000)
			set(&c)
			batcher := newBench(b, c)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			share(b, 256, all(func(i int) {
				if _, err := batcher.Do(ctx, i); err != nil {
					panic(err)
				}
			}))
		})
	}
}

type sums struct{ of [16]atomic.Int64 }

func (s *sums) Add(c ferry.Counter, delta int64) { s.of[c].Add(delta) }
func (s *sums) Observe(ferry.BatchReport)        {}

// BenchmarkEnqueue times Submit alone; each of 16 callers then waits, untimed,
// for its answer. The clock's own cost is in the figures.
func BenchmarkEnqueue(b *testing.B) {
	const callers = 16
	batcher := newBench(b, benchConfig(1000))
	times := make([]time.Duration, b.N)
	share(b, callers, func() func(int) {
		answered := make(chan struct{}, 1)
		answer := func(int, error) { answered <- struct{}{} }
		return func(i int) {
			began := time.Now()
			err := batcher.Submit(i, answer)
			times[i] = time.Since(began)
			if err != nil {
				panic(err)
			}
			<-answered
		}
	})
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "enqueue-median-ns")
	b.ReportMetric(float64(times[len(times)*99/100]), "enqueue-p99-ns")
}

// BenchmarkIdle times a lone call, its batcher and the process at rest before.
func BenchmarkIdle(b *testing.B) {
	for name, rest := range map[string]time.Duration{"back-to-back": 0, "rested": 100 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			batcher := newBench(b, benchConfig(1000))
			times := make([]time.Duration, 0, b.N)
			for i := range b.N {
				if rest > 0 {
					<-time.After(rest)
				}
				began := time.Now()
				if _, err := batcher.Do(context.Background(), i); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2]), "median-ns")
		})
	}
}

// BenchmarkReject is what overload costs.
func BenchmarkReject(b *testing.B) {
	c := benchConfig(1)
	c.MaxQueue = 1
	release := make(chan struct{})
	batcher, err := ferry.New(c, func(_ context.Context, batch []int) ([]ferry.Result[int], error) {
		<-release
		return make([]ferry.Result[int], len(batch)), nil
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := batcher.Submit(0, func(int, error) {}); err != nil {
		b.Fatal(err)
	}
	share(b, 16, all(func(i int) {
		if _, err := batcher.Do(context.Background(), i); err == nil {
			panic("admitted")
		}
	}))
	b.StopTimer()
	close(release)
	if err := batcher.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}
