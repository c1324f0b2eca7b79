// Command benchcmd measures ferry beside the bare batchers, both sides
// interleaved, and prints one JSON line. It fails when a bar is missed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

const (
	barRatio   = 0.6  // of the bare batcher's throughput, at least
	barEnqueue = 500  // ns, at most
	barIdle    = 5000 // ns, at most
)

type settings struct {
	rounds         int
	headline, cell time.Duration
	calls          int
}

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 5, "interleaved rounds; medians count")
	flag.DurationVar(&s.headline, "headline", time.Second, "time per side and round of the cell with the bar")
	flag.DurationVar(&s.cell, "cell", 150*time.Millisecond, "time per side and round of every other cell")
	flag.IntVar(&s.calls, "calls", 500, "calls per round of the idle measurement")
	enforce := flag.Bool("enforce", true, "exit with status 1 when a bar is missed")
	flag.Parse()

	r := measure(s)
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "benchcmd: write the result:", err)
		os.Exit(1)
	}
	if *enforce && (r.Value > 1 || r.EnqueueAllocs > 0) {
		os.Exit(1)
	}
}

// report is the JSON line. Value is the worst of figure and bar: at most 1
// passes. The allocations' bar is 0 and stands beside it.
type report struct {
	Bench   string            `json:"bench"`
	Value   float64           `json:"value"`
	Unit    string            `json:"unit"`
	Against string            `json:"against"`
	Spread  map[string]spread `json:"spread"`
	Limits  map[string]any    `json:"limits"`
	Ratio   float64           `json:"throughput_ratio"`
	Enqueue float64           `json:"enqueue_ns"`
	Idle    float64           `json:"idle_added_ns"`

	RatioBar   float64 `json:"throughput_ratio_bar"`
	EnqueueBar float64 `json:"enqueue_ns_bar"`
	IdleBar    float64 `json:"idle_added_ns_bar"`

	EnqueueMean   float64 `json:"enqueue_mean_ns"`
	EnqueueP99    float64 `json:"enqueue_p99_ns"`
	EnqueueAllocs float64 `json:"enqueue_allocs"`

	IdleRested  float64 `json:"idle_rested_added_ns"`
	IdleHandoff float64 `json:"idle_rested_handoff_ns"`

	CPU map[string]float64 `json:"cpu_ns_per_call"`

	RatioYielding float64 `json:"throughput_ratio_yielding"`
	RatioContext  float64 `json:"throughput_ratio_cancellable"`

	Cells    map[string]float64 `json:"cells_calls_per_s"`
	Lock     map[string]float64 `json:"admission_lock_ns"`
	Duration float64            `json:"took_s"`
}

func measure(s settings) report {
	began := time.Now()
	r := report{
		Bench: "ferry", Unit: "worst of figure by bar, at most 1 passes",
		Against: "a mutex, a slice and one worker with reusable waiters; 256 callers, batch 1000, no lanes",
		Limits: map[string]any{
			"gomaxprocs": runtime.GOMAXPROCS(0), "cpus": runtime.NumCPU(), "go": runtime.Version(),
			"rounds": s.rounds, "headline": s.headline.String(), "cell": s.cell.String(),
		},
		RatioBar: barRatio, EnqueueBar: barEnqueue, IdleBar: barIdle,
		Spread: map[string]spread{}, CPU: map[string]float64{}, Cells: map[string]float64{}, Lock: map[string]float64{},
	}
	headline(s, &r)
	matrix(s, &r)
	enqueue(s, &r)
	idle(s, &r)
	lock(s, &r)
	r.Value = max(barRatio/r.Ratio, r.Enqueue/barEnqueue, r.Idle/barIdle)
	r.Duration = time.Since(began).Seconds()
	return r
}
