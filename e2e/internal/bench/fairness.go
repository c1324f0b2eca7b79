package bench

import (
	"context"
	"errors"
	"math"
	"time"

	"ankusa.dev/e2e/internal/harness"
)

const (
	fairBar     = 2.0
	fairFloor   = 2.0 // milliseconds
	fairSamples = 2000
	fairWindow  = 1024 // of the heavy tenant, a quarter of the whole as by default
	lightRate   = 20
	heavyRate   = 1980
	heavyDelay  = 50 * time.Millisecond
)

func fairSettings() harness.Settings {
	return harness.Settings{"dispatch.tenants": map[string]any{"heavy": map[string]any{"max_inflight": fairWindow}}}
}

// fairness measures a light tenant alone and beside one at 99 times its load, whose sink is slow. Its percentiles are
// those of all repetitions' hooks together, since one repetition has too few.
func fairness(ctx context.Context, g *Rig) (Result, error) {
	s := street{
		measured: party{tenant: "light", rate: lightRate, far: receiverSpec{First: true}},
		other:    party{tenant: "heavy", rate: heavyRate, far: receiverSpec{Delay: heavyDelay}},
		lead:     3 * time.Second, settings: fairSettings(),
	}
	each := time.Duration(math.Ceil(fairSamples/float64(lightRate*g.Repeat))) * time.Second
	var alone, beside fairSide
	peak := 0
	for i := range g.Repeat {
		for _, side := range []*fairSide{&alone, &beside} {
			out, err := s.measure(ctx, g, each, side == &alone)
			if err != nil {
				return Result{}, err
			}
			side.add(out.lags)
			peak = max(peak, out.inflight)
		}
		g.say("  %d of %d: p99 %.3g ms beside %.3g ms alone, heavy in flight %d", i+1, g.Repeat, beside.p99[i], alone.p99[i], peak)
	}
	if peak <= 0 {
		return Result{}, errors.New("the heavy tenant's rows in flight were never seen")
	}
	return g.fairResult(alone, beside, peak), nil
}

// fairSide gathers one side's lags.
type fairSide struct {
	lags []float64
	p99  samples // by repetition
}

func (s *fairSide) add(lags []float64) {
	s.lags, s.p99 = append(s.lags, lags...), append(s.p99, percentile(lags, 0.99))
}

func (g *Rig) fairResult(alone, beside fairSide, peak int) Result {
	solo, p99 := percentile(alone.lags, 0.99), percentile(beside.lags, 0.99)
	ratio := p99 / max(solo, fairFloor)
	return Result{
		Bench: "fairness", Value: max(ratio/fairBar, float64(peak)/fairWindow), Unit: "figure/bar",
		Against: "the light tenant alone", Spread: max(alone.p99.spread(), beside.p99.spread()),
		Limits: g.limits(map[string]any{
			"light_per_second": lightRate, "heavy_per_second": heavyRate, "heavy_sink_ms": heavyDelay.Milliseconds(),
			"samples": len(beside.lags), "floor_ms": fairFloor, "history": true, "settings": fairSettings(),
		}),
		Figures: map[string]any{
			"p99_ms": p99, "solo_p99_ms": solo, "ratio": ratio, "bar_at_most": fairBar,
			"p50_ms": percentile(beside.lags, 0.5), "solo_p50_ms": percentile(alone.lags, 0.5),
			"heavy_inflight": peak, "bar_heavy_inflight": fairWindow,
		},
	}
}
