package main

import (
	"context"
	"fmt"

	"ankusa.dev/ferry"
	"ankusa.dev/ferry/internal/bare"
)

const capacity = 1 << 16

func copyAll(batch, out []int) { copy(out, batch) }

// echo does what copyAll does.
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

func start(batch int) *ferry.Batcher[int, int] {
	c := ferry.Default[int]()
	c.MaxBatch, c.MaxQueue = batch, capacity
	b, err := ferry.New(c, echo())
	if err != nil {
		panic(err)
	}
	return b
}

func stop(b *ferry.Batcher[int, int]) {
	if err := b.Close(context.Background()); err != nil {
		panic(err)
	}
}

func do(ctx context.Context, b *ferry.Batcher[int, int], in int) {
	if out, err := b.Do(ctx, in); err != nil || out != in {
		panic(fmt.Sprintf("input %d: got %d, %v", in, out, err))
	}
}

func ferrySide(batch int) side {
	return side{"ferry", func() (func(int), func()) {
		b := start(batch)
		return func(in int) { do(context.Background(), b, in) }, func() { stop(b) }
	}}
}

func cancellableSide(batch int) side {
	return side{"cancellable", func() (func(int), func()) {
		b := start(batch)
		ctx, cancel := context.WithCancel(context.Background())
		return func(in int) { do(ctx, b, in) }, func() { stop(b); cancel() }
	}}
}

func bareSide(name string, batch int, yield bool) side {
	return side{name, func() (func(int), func()) {
		s := bare.NewSlice(batch, yield, copyAll)
		return func(in int) { s.Do(in) }, s.Close
	}}
}

func channelSide() side {
	return side{"channel", func() (func(int), func()) {
		c := bare.NewChannel(copyAll)
		return func(in int) { c.Do(in) }, c.Close
	}}
}

// headline measures the cell that has the bar. The ratio is taken round by
// round, so that what slows both sides down cancels out.
func headline(s settings, r *report) {
	const callers, batch = 256, 1000
	rounds := interleave(s.rounds, callers, s.headline,
		ferrySide(batch), bareSide("bare", batch, false), bareSide("yielding", batch, true), cancellableSide(batch))
	ratio := func(of, to string) []float64 {
		var all []float64
		for i := range rounds[of] {
			all = append(all, rounds[of][i].perSecond()/rounds[to][i].perSecond())
		}
		return all
	}
	for name, works := range rounds {
		r.Cells[cell(callers, batch, name)] = round(median(each(works, work.perSecond)))
		r.CPU[cell(callers, batch, name)] = round(median(each(works, work.cpuPerCall)))
	}
	r.Ratio = round(median(ratio("ferry", "bare")))
	r.RatioYielding = round(median(ratio("ferry", "yielding")))
	r.RatioContext = round(median(ratio("cancellable", "bare")))
	r.Spread["throughput_ratio"] = rangeOf(ratio("ferry", "bare"))
	r.Spread["throughput_ratio_yielding"] = rangeOf(ratio("ferry", "yielding"))
}

func cell(callers, batch int, name string) string {
	return fmt.Sprintf("callers=%d/batch=%d/%s", callers, batch, name)
}

// matrix measures every other cell, and the unbatched worker beside them.
func matrix(s settings, r *report) {
	for _, callers := range []int{1, 16, 256} {
		for _, batch := range []int{1, 10, 1000} {
			if callers == 256 && batch == 1000 {
				continue
			}
			sides := []side{ferrySide(batch), bareSide("bare", batch, false)}
			if batch == 1 {
				sides = append(sides, channelSide())
			}
			for name, works := range interleave(s.rounds, callers, s.cell, sides...) {
				r.Cells[cell(callers, batch, name)] = round(median(each(works, work.perSecond)))
			}
		}
	}
}
