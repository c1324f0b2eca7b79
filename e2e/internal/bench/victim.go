package bench

import (
	"context"
	"time"
)

const (
	victimBar   = 1.1
	victimFloor = 1.0 // milliseconds
	victimRate  = 100
	hangingRate = 100
	victimTime  = 60 * time.Second
	// victimMore pairs are measured beyond the usual repetitions: seven of five.
	victimMore = 2
)

// victim measures a tenant alone and beside another whose destination hangs from the start.
func victim(ctx context.Context, g *Rig) (Result, error) {
	s := street{
		measured: party{tenant: "victim", rate: victimRate, far: receiverSpec{First: true}},
		other:    party{tenant: "hanging", rate: hangingRate, far: receiverSpec{Hang: true}},
	}
	var alone, beside victimSide
	pairs := g.Repeat + victimMore
	for i := range pairs {
		for _, side := range []*victimSide{&alone, &beside} {
			out, err := s.measure(ctx, g, victimTime, side == &alone)
			if err != nil {
				return Result{}, err
			}
			side.add(out.lags)
		}
		g.say("  %d of %d: p50 %.3g ms and p95 %.3g ms beside %.3g and %.3g alone", i+1, pairs,
			beside.p50[i], beside.p95[i], alone.p50[i], alone.p95[i])
	}
	return g.victimResult(alone, beside, pairs), nil
}

// victimSide are one side's percentiles by repetition.
type victimSide struct{ p50, p95, p99 samples }

func (s *victimSide) add(lags []float64) {
	s.p50, s.p95 = append(s.p50, percentile(lags, 0.5)), append(s.p95, percentile(lags, 0.95))
	s.p99 = append(s.p99, percentile(lags, 0.99))
}

func (g *Rig) victimResult(alone, beside victimSide, pairs int) Result {
	ratio := func(beside, alone samples) float64 { return beside.median() / max(alone.median(), victimFloor) }
	p50, p95 := ratio(beside.p50, alone.p50), ratio(beside.p95, alone.p95)
	return Result{
		Bench: "victim", Value: max(p50, p95) / victimBar, Unit: "figure/bar",
		Against: "the same tenant alone",
		Spread:  max(alone.p50.spread(), beside.p50.spread(), alone.p95.spread(), beside.p95.spread()),
		Limits: g.limits(map[string]any{
			"victim_per_second": victimRate, "hanging_per_second": hangingRate, "seconds": victimTime.Seconds(),
			"repeat": pairs, "floor_ms": victimFloor, "history": true,
		}),
		Figures: map[string]any{
			"p50_ms": beside.p50.median(), "solo_p50_ms": alone.p50.median(), "p50_ratio": p50,
			"p95_ms": beside.p95.median(), "solo_p95_ms": alone.p95.median(), "p95_ratio": p95,
			"p99_ms": beside.p99.median(), "solo_p99_ms": alone.p99.median(), "bar_at_most": victimBar,
		},
	}
}
