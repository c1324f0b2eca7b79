package main

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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

// work is what callers goroutines did: calls, in which time, on how much CPU.
type work struct {
	calls     int64
	wall, cpu time.Duration
}

func (w *work) add(o work) {
	w.calls += o.calls
	w.wall += o.wall
	w.cpu += o.cpu
}

func (w work) perSecond() float64 { return float64(w.calls) / w.wall.Seconds() }

func (w work) cpuPerCall() float64 { return float64(w.cpu) / float64(w.calls) }

// drive lets callers goroutines call do for d.
func drive(callers int, d time.Duration, do func(int)) work {
	var stop atomic.Bool
	var total atomic.Int64
	var wg sync.WaitGroup
	began, cpu := time.Now(), cpuTime()
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
	return work{calls: total.Load(), wall: time.Since(began), cpu: cpuTime() - cpu}
}

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// side is one of the things that are measured beside each other.
type side struct {
	name  string
	start func() (do func(int), stop func())
}

// slices of a round: the sides take turns within it, so that what slows the
// machine down for a while slows all of them down.
const turns = 5

// interleave measures each side for d per round.
func interleave(rounds, callers int, d time.Duration, sides ...side) map[string][]work {
	done := map[string][]work{}
	for range rounds {
		round := map[string]*work{}
		for range turns {
			for _, s := range sides {
				if round[s.name] == nil {
					round[s.name] = &work{}
				}
				do, stop := s.start()
				round[s.name].add(drive(callers, d/turns, do))
				stop()
			}
		}
		for name, w := range round {
			done[name] = append(done[name], *w)
		}
	}
	return done
}

// each maps the rounds of one side.
func each(rounds []work, f func(work) float64) []float64 {
	var xs []float64
	for _, w := range rounds {
		xs = append(xs, f(w))
	}
	return xs
}
