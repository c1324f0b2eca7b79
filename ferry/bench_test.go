package ferry_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

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

// share calls do b.N times from that many goroutines.
func share(b *testing.B, callers int, do func(int)) {
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
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
			share(b, callers, func(i int) { c.Do(i) })
		})
		for _, batch := range []int{1, 10, 1000} {
			b.Run(fmt.Sprintf("callers=%d/batch=%d/bare", callers, batch), func(b *testing.B) {
				s := bare.NewSlice(batch, false, bareEcho)
				defer s.Close()
				share(b, callers, func(i int) { s.Do(i) })
			})
			b.Run(fmt.Sprintf("callers=%d/batch=%d/ferry", callers, batch), func(b *testing.B) {
				batcher := newBench(b, benchConfig(batch))
				share(b, callers, func(i int) {
					if _, err := batcher.Do(context.Background(), i); err != nil {
						panic(err)
					}
				})
			})
		}
	}
}
