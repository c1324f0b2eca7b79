package scenario_test

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
)

// TestProcessesThatShowCertificatesTrustNobodyElse runs all four kinds with certificates, and lets processes knock that
// have another authority's or none.
func TestProcessesThatShowCertificatesTrustNobodyElse(t *testing.T) {
	w := newWorld(t)
	ours := w.authority("ours")
	w.start(harness.Options{Authority: ours, Schedulers: 2, Ingests: 1, Runners: 1}, harness.StartFour)
	w.send(load.Config{Rate: 50, Workers: 8})
	w.flow(50)

	foreign := w.authority("foreign")
	stranger, err := foreign.Issue("stranger")
	require.NoError(t, err)
	trusting := maps.Clone(stranger)
	known, err := ours.Issue("known")
	require.NoError(t, err)
	trusting["rpc.tls.ca"] = known["rpc.tls.ca"]
	for name, c := range map[string]struct {
		settings     harness.Settings
		itself, them string
	}{
		"of-another-authority":   {stranger, "certificate signed by unknown authority", "bad certificate"},
		"certificate-of-another": {trusting, "", "certificate signed by unknown authority"},
		"plaintext":              {nil, "", "first record does not look like a TLS handshake"},
	} {
		p, err := w.cluster.AddRunner(t.Context(), name, c.settings)
		require.NoError(t, err)
		require.NoError(t, p.Launch())
		leader := w.cluster.Schedulers[w.leader()]
		require.Eventually(t, func() bool {
			return says(t, p.Log(), c.itself) && says(t, leader.Log(), c.them)
		}, 20*time.Second, 100*time.Millisecond, "%s: both sides say what is wrong, see %s and %s", name, p.Log(), leader.Log())
		require.True(t, p.Running(), name)
		ctx, cancel := w.soon()
		status, body := w.request(ctx, http.MethodGet, p.Ready, nil)
		cancel()
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", name, body)
		require.NoError(t, p.Kill())
	}

	w.delivers()
	w.restart(w.cluster.Schedulers[w.leader()])
	w.delivers()
	require.Zero(t, w.finish().Duplicates)
	w.nobodyDied()
}

// TestCertificatesThatCannotBeLoadedStopTheProcess says which file is at fault.
func TestCertificatesThatCannotBeLoadedStopTheProcess(t *testing.T) {
	w := newWorld(t)
	a := w.authority("ours")
	good, err := a.Issue("good")
	require.NoError(t, err)
	other, err := a.Issue("other")
	require.NoError(t, err)
	for key, c := range map[string]struct{ path, says string }{
		"rpc.tls.ca":   {other["rpc.tls.key"].(string), "no certificate"},
		"rpc.tls.key":  {other["rpc.tls.key"].(string), "private key does not match"},
		"rpc.tls.cert": {filepath.Join(w.dir, "absent.pem"), "absent.pem"},
	} {
		t.Run(key, func(t *testing.T) {
			dir := filepath.Join(w.dir, key)
			s := maps.Clone(good)
			s[key] = c.path
			s["rpc.listen"] = harness.Loopback + ":0"
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cluster, err := harness.StartOne(ctx, harness.Options{Bin: bin, Dir: dir, Settings: s})
			require.Error(t, err)
			require.True(t, says(t, cluster.One.Log(), c.says), cluster.One.Log())
			require.Len(t, cluster.One.Died(), 1)
		})
	}
}

func (w *world) authority(name string) *harness.Authority {
	w.t.Helper()
	a, err := harness.NewAuthority(filepath.Join(w.dir, name))
	require.NoError(w.t, err)
	return a
}

// says looks for a text in what a process has logged.
func says(t *testing.T, log, text string) bool {
	t.Helper()
	all, err := os.ReadFile(log)
	require.NoError(t, err)
	return strings.Contains(string(all), text)
}
