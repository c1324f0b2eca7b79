// Package bench measures what the product promises in figures, each beside the least that would do the same job.
package bench

import (
	"encoding/json"
	"math"
	"slices"
)

// Result is one benchmark's line.
type Result struct {
	Bench string
	// Value is the worst of figure divided by bar, turned so that at most 1 passes; for a benchmark without a bar, the
	// figure itself.
	Value float64
	Unit  string
	// Against is what the product was measured beside.
	Against string
	// Spread is the largest distance from a median among its samples, as a share of the median.
	Spread float64
	// Limits are the settings and the machine that the figures hold for.
	Limits map[string]any
	// Figures are fields of their own.
	Figures map[string]any
}

// MarshalJSON writes one flat document.
func (r Result) MarshalJSON() ([]byte, error) {
	all := map[string]any{
		"bench": r.Bench, "value": round(r.Value), "unit": r.Unit, "against": r.Against, "spread": round(r.Spread), "limits": r.Limits,
	}
	for name, figure := range r.Figures {
		if f, ok := figure.(float64); ok {
			figure = round(f)
		}
		all[name] = figure
	}
	return json.Marshal(all)
}

// round keeps four significant digits.
func round(f float64) float64 {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(f))))
	return math.Round(f*scale) / scale
}

// samples are the figures of one side, one for each repetition.
type samples []float64

func (s samples) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func (s samples) spread() float64 {
	m, worst := s.median(), 0.0
	for _, f := range s {
		worst = max(worst, math.Abs(f-m)/m)
	}
	return worst
}

// percentile is the nearest-rank percentile of at least one figure.
func percentile(figures []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}
