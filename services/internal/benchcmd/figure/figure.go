// Package figure is what a benchmark found: its samples, and the line that it prints.
package figure

import (
	"encoding/json"
	"maps"
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
	// Spread is the largest distance of a sample from its side's median, as a share of that median.
	Spread float64
	// Limits are the settings and the machine that the figures hold for.
	Limits map[string]any
	// Figures are fields of their own.
	Figures map[string]any
}

// MarshalJSON writes one flat document, with four significant digits. A figure that is no number, for too few rows were
// measured, is null.
func (r Result) MarshalJSON() ([]byte, error) {
	flat := maps.Clone(r.Figures)
	if flat == nil {
		flat = map[string]any{}
	}
	for name, v := range flat {
		if f, ok := v.(float64); ok {
			flat[name] = number(f)
		}
	}
	flat["bench"], flat["unit"], flat["against"], flat["limits"] = r.Bench, r.Unit, r.Against, r.Limits
	flat["value"], flat["spread"] = number(r.Value), number(r.Spread)
	return json.Marshal(flat)
}

func number(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil
	}
	return Round(f)
}

// Round keeps four significant digits.
func Round(f float64) float64 {
	if f == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(f))))
	return math.Round(f*scale) / scale
}

// Samples are the figures of one side, one for each repetition.
type Samples []float64

// Median of at least one sample.
func (s Samples) Median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Spread is the largest distance of a sample from the median, as a share of the median.
func (s Samples) Spread() float64 {
	median, worst := s.Median(), 0.0
	for _, f := range s {
		worst = max(worst, math.Abs(f-median)/median)
	}
	return worst
}
