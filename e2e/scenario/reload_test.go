package scenario_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// narrow lets two attempts run at once, wide many.
func narrow() harness.Settings {
	s := brisk()
	s["dispatch.concurrency"] = 2
	return s
}

func wide() harness.Settings {
	return harness.Settings{
		"dispatch.batch": 128, "dispatch.concurrency": 40, "dispatch.sink_concurrency": 40,
		"dispatch.tenants.default.concurrency": 40,
	}
}

// atOnce is the most attempts that the receiver had under way at one moment, of those that came and were answered within
// a time.
func (w *world) atOnce(from, to time.Time) int {
	w.t.Helper()
	attempts, err := history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(w.t, err)
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, a := range attempts {
		if a.Arrived.After(from) && a.Answered.Before(to) {
			edges = append(edges, edge{a.Arrived, 1}, edge{a.Answered, -1})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	most, now := 0, 0
	for _, e := range edges {
		now += e.by
		most = max(most, now)
	}
	return most
}

// reloading is a deployment that lags behind its load, since only two attempts run at once.
func reloading(t *testing.T, start func(*world)) *world {
	t.Helper()
	w := newWorld(t)
	w.receiver.Behave("/", receiver.After(50*time.Millisecond, receiver.Answer(200)))
	start(w)
	w.send(load.Config{})
	w.flow(200)
	return w
}

// widened checks that few ran at once until some time, many since, and that nothing was lost or delivered twice.
func (w *world) widened(changed time.Time) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	before := w.receiver.Attempts()
	require.NoError(w.t, w.receiver.Wait(ctx, func() bool { return w.receiver.Attempts() >= before+200 }))
	require.LessOrEqual(w.t, w.atOnce(time.Time{}, changed), 2)
	require.Greater(w.t, w.atOnce(changed, time.Now()), 10)
	require.Zero(w.t, w.finish().Duplicates)
	w.nobodyDied()
}

// logged says whether a process's log holds a text.
func (w *world) logged(p *harness.Process, text string) bool {
	w.t.Helper()
	log, err := os.ReadFile(filepath.Join(w.dir, "cluster", p.Name+".log"))
	require.NoError(w.t, err)
	return strings.Contains(string(log), text)
}

func TestAReloadUnderLoadLosesAndDuplicatesNothing(t *testing.T) {
	w := reloading(t, func(w *world) { w.start(harness.Options{Settings: narrow()}, harness.StartOne) })
	p := w.cluster.One
	require.NoError(t, p.Reconfigure(harness.Settings{"dispatch.concurrency": 0, "dispatch.batch": 0}))
	for _, fault := range []string{"dispatch.concurrency must be 1 to 1000000, got 0", "dispatch.batch must be 1 to 4096, got 0"} {
		require.Eventually(t, func() bool { return w.logged(p, fault) }, patience, 10*time.Millisecond, fault)
	}
	w.flow(some)
	changed := time.Now()
	require.NoError(t, p.Reconfigure(wide()))
	w.widened(changed)
}

// The standby alone is told; nothing changes before it leads.
func TestAStandbyThatComesToLeadHasWhatItReadLast(t *testing.T) {
	w := reloading(t, func(w *world) {
		w.start(harness.Options{Settings: narrow(), Schedulers: 2, Ingests: 1, Runners: 2}, harness.StartFour)
	})
	leads := w.leader()
	require.NoError(t, w.cluster.Schedulers[1-leads].Reconfigure(wide()))
	w.flow(some)
	changed := time.Now()
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(t, w.cluster.Schedulers[leads].Terminate(ctx))
	w.widened(changed)
}
