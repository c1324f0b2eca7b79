package figure

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAResultIsOneFlatDocument(t *testing.T) {
	text, err := json.Marshal(Result{
		Bench: "backlog", Value: 0.812345, Unit: "figure/bar", Against: "x", Spread: 0.01,
		Limits: map[string]any{"cpus": 2}, Figures: map[string]any{"rows_per_second": 123456.7, "calls": 3, "ratio": math.NaN()},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"bench":"backlog","value":0.8123,"unit":"figure/bar","against":"x","spread":0.01,
		"limits":{"cpus":2},"rows_per_second":123500,"calls":3,"ratio":null}`, string(text))
}

func TestMedianAndSpread(t *testing.T) {
	require.InDelta(t, 2, Samples{3, 1, 2}.Median(), 0)
	require.InDelta(t, 2.5, Samples{4, 1, 2, 3}.Median(), 0)
	require.InDelta(t, 0.5, Samples{3, 1, 2}.Spread(), 0)
}
