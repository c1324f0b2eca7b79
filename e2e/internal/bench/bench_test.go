package bench

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

// TestMain is also the processes that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "child" {
		if err := Child(context.Background(), os.Args[2], os.Args[3], os.Stdout); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func rig(t *testing.T) *Rig {
	t.Helper()
	return &Rig{Self: os.Args[0], Dir: t.TempDir(), Repeat: 3, Log: io.Discard}
}

func TestAResultIsOneFlatDocument(t *testing.T) {
	text, err := json.Marshal(Result{
		Bench: "accept", Value: 0.812345, Unit: "bar/figure", Against: "x", Spread: 0.01,
		Limits: map[string]any{"cpus": 2}, Figures: map[string]any{"ratio": 123.456, "bar_at_least": 0.6},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"bench":"accept","value":0.8123,"unit":"bar/figure","against":"x","spread":0.01,
		"limits":{"cpus":2},"ratio":123.5,"bar_at_least":0.6}`, string(text))
}

func TestMedianSpreadAndPercentile(t *testing.T) {
	s := samples{3, 1, 2}
	require.InDelta(t, 2, s.median(), 0)
	require.InDelta(t, 0.5, s.spread(), 0)
	require.InDelta(t, 2.5, samples{1, 2, 3, 4}.median(), 0)
	figures := make([]float64, 100)
	for i := range figures {
		figures[i] = float64(100 - i)
	}
	require.InDelta(t, 50, percentile(figures, 0.5), 0)
	require.InDelta(t, 99, percentile(figures, 0.99), 0)
	require.InDelta(t, 7, percentile([]float64{7}, 0.99), 0)
}

func TestTheSidesAreMeasuredInTurns(t *testing.T) {
	var order strings.Builder
	side := func(name string) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			order.WriteString(name)
			return 1, nil
		}
	}
	ours, theirs, err := rig(t).interleave(t.Context(), side("a"), side("b"))
	require.NoError(t, err)
	require.Equal(t, "ababab", order.String())
	require.Equal(t, samples{1, 1, 1}, ours)
	require.Equal(t, ours, theirs)
}

func TestTheSearchFindsTheHighestRateThatIsKept(t *testing.T) {
	for _, capacity := range []float64{80, 1234, 40_000} {
		s := &search{rig: rig(t), try: func(_ context.Context, rate float64, d time.Duration) (int, error) {
			if rate == 0 {
				return int(0.7 * capacity * d.Seconds()), nil // overload costs throughput
			}
			return int(math.Min(rate, capacity) * d.Seconds()), nil
		}}
		for range 3 {
			found, err := s.next(t.Context())
			require.NoError(t, err)
			// A second of load may be left behind after thirty.
			require.InEpsilon(t, capacity*30/29, found, steadyStep-1)
		}
	}
}

func TestIdleCountsOnlyWhatIsNotExempt(t *testing.T) {
	cpu := samples{0.1, 0.2, 0.3, 0.2, 0.2}
	before := map[string]float64{"lease": 10, "due": 5}
	quiet := rig(t).idleResult(before, map[string]float64{"lease": 90, "due": 5, "ready": 60}, cpu)
	require.InDelta(t, 0.4, quiet.Value, 0.001)
	busy := rig(t).idleResult(before, map[string]float64{"lease": 90, "due": 8}, cpu)
	require.InDelta(t, 4, busy.Value, 0.001)
}

func TestTheOpponentsDoTheirJobAsProcessesOfTheirOwn(t *testing.T) {
	g := rig(t)
	f, err := g.plan(t.Context(), receiverSpec{Delay: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, f.start(t.Context(), g))
	defer func() { require.NoError(t, f.close()) }()

	port, err := harness.FreePort(t.Context())
	require.NoError(t, err)
	base := "http://" + harness.Address(port)
	relay, err := g.start(t.Context(), childRelay, base+"/ready", serverSpec{Listen: harness.Address(port), To: f.url(), Conns: 8})
	require.NoError(t, err)
	out, err := g.load(t.Context(), base, lean.Load{Path: path, Count: 100})
	require.NoError(t, err)
	require.NoError(t, relay.Close())
	require.Equal(t, 100, out.Accepted)
	n, err := f.count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, n)

	store, err := g.start(t.Context(), childStore, base+"/ready", serverSpec{Listen: harness.Address(port), Dir: filepath.Join(g.Dir, "store")})
	require.NoError(t, err)
	out, err = g.load(t.Context(), base, lean.Load{Path: path, Count: 100, Times: true})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Len(t, out.Times, 100)

	took, err := run[time.Duration](t.Context(), g, childDrain, drainSpec{URL: f.url(), N: 100, Workers: 4, Bytes: 10})
	require.NoError(t, err)
	require.Greater(t, took, 25*time.Millisecond)
	_, err = f.until(t.Context(), 200)
	require.NoError(t, err)
}

func TestAnUnknownBenchmarkIsNamed(t *testing.T) {
	err := Run(t.Context(), rig(t), []string{"accept", "acept"}, io.Discard)
	require.ErrorContains(t, err, `"acept"`)
}

func TestAChildThatFailsSaysWhy(t *testing.T) {
	_, err := run[time.Duration](t.Context(), rig(t), childDrain, drainSpec{URL: "http://127.0.0.1:1/", N: 1, Workers: 1})
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.ErrorContains(t, err, "connection refused")
}

func TestDeliverAndHistoryShareTheirSearches(t *testing.T) {
	g := rig(t)
	g.wanted = []string{"history"}
	require.False(t, g.wants("deliver"))
	g.steady = map[string]samples{sideProduct: {1}, sideBare: {2}, sideWithout: {3}}
	rates, err := g.steadyRates(t.Context(), sideProduct, sideWithout)
	require.NoError(t, err, "nothing is measured again")
	require.Equal(t, samples{3}, rates[sideWithout])
}

func TestFairnessTakesTheWorseOfItsBars(t *testing.T) {
	side := func(lags ...float64) (s fairSide) { s.add(lags); return s }
	r := rig(t).fairResult(side(1, 1, 1.5), side(1, 2, 3), 512)
	require.InDelta(t, 0.75, r.Value, 1e-9, "3 ms are 1.5 times the floor of 2 ms, of twice that")
	r = rig(t).fairResult(side(10), side(20), 1024)
	require.InDelta(t, 1, r.Value, 1e-9)
	r = rig(t).fairResult(side(10), side(5), 1536)
	require.InDelta(t, 1.5, r.Value, 1e-9, "over its window")
}

func TestVictimComparesMediansOfPairs(t *testing.T) {
	var alone, beside victimSide
	for _, lag := range []float64{1, 2, 100} {
		alone.add([]float64{lag, lag})
		beside.add([]float64{2 * lag, 2 * lag})
	}
	r := rig(t).victimResult(alone, beside, 3)
	require.InDelta(t, 2/victimBar, r.Value, 1e-9)
}

func TestTheLongestGapIsOneThatEndedAfterTheKill(t *testing.T) {
	at := func(ms int) lean.Answered { return lean.Answered{At: time.UnixMilli(int64(ms))} }
	arrivals := []lean.Answered{at(9000), at(0), at(5000), at(8000), at(8500)}
	require.Equal(t, 3*time.Second, longestGap(arrivals, time.UnixMilli(5500)))
	require.Zero(t, longestGap(arrivals, time.UnixMilli(9500)))
}

func TestAReceiverThatHangsHoldsItsSender(t *testing.T) {
	g := rig(t)
	f, err := g.plan(t.Context(), receiverSpec{Hang: true})
	require.NoError(t, err)
	require.NoError(t, f.start(t.Context(), g))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = run[time.Duration](ctx, g, childDrain, drainSpec{URL: f.url(), N: 1, Workers: 1, Bytes: 10})
	require.Error(t, err)
	n, err := f.count(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, f.close())
}
