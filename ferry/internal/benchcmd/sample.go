package main

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spread is the range of the rounds, whose median is the figure.
type spread struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

func rangeOf(xs []float64) spread { return spread{round(slices.Min(xs)), round(slices.Max(xs))} }

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	if n := len(xs); n%2 == 0 {
		return (xs[n/2-1] + xs[n/2]) / 2
	}
	return xs[len(xs)/2]
}

func round(x float64) float64 {
	if math.Abs(x) >= 100 {
		return math.Round(x)
	}
	return math.Round(x*1000) / 1000
}

// rate is the number of calls per second that callers goroutines make for d.
func rate(callers int, d time.Duration, do func(int)) float64 {
	var stop atomic.Bool
	var total atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			n := 0
			for ; !stop.Load(); n++ {
				do(n)
			}
			total.Add(int64(n))
		})
	}
	time.Sleep(d)
	stop.Store(true)
	wg.Wait()
	return float64(total.Load()) / time.Since(began).Seconds()
}

// side is one of the things that are measured beside each other.
type side struct {
	name  string
	start func() (do func(int), stop func())
}

// interleave measures the sides in turn, round by round.
func interleave(rounds, callers int, d time.Duration, sides ...side) map[string][]float64 {
	rates := map[string][]float64{}
	for range rounds {
		for _, s := range sides {
			do, stop := s.start()
			rates[s.name] = append(rates[s.name], rate(callers, d, do))
			stop()
		}
	}
	return rates
}
