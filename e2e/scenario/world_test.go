package scenario_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/check"
	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

const (
	stripeSecret = "whsec_e2eStripeSecretThatMustNotLeak"
	githubSecret = "e2e-github-secret-that-must-not-leak"
	swSecret     = "whsec_ZTJlLXN0YW5kYXJkLXdlYmhvb2tzLWtleS0wMDE="
)

// patience bounds every wait for something that must happen.
const patience = 2 * time.Minute

// world is one deployment with a receiver behind it and a load before it.
type world struct {
	t        *testing.T
	dir      string
	receiver *receiver.Receiver
	cluster  *harness.Cluster
	load     *load.Run
	faults   []history.Fault
	// sourceNames are those of the file.
	sourceNames []string
}

// newWorld starts the receiver. Files are removed at the end, or kept and named where the test failed.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "ankusa-e2e-")
	require.NoError(t, err)
	r, err := receiver.Start(harness.Loopback+":0", dir)
	require.NoError(t, err)
	w := &world{t: t, dir: dir, receiver: r}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return w
}

// one starts the one-process deployment.
func one(t *testing.T, o harness.Options) *world {
	t.Helper()
	w := newWorld(t)
	w.start(o, harness.StartOne)
	return w
}

// four starts every kind of process: two of those that there can be several of.
func four(t *testing.T, o harness.Options) *world {
	t.Helper()
	o.Schedulers, o.Ingests, o.Runners = 2, 2, 2
	w := newWorld(t)
	w.start(o, harness.StartFour)
	return w
}

func (w *world) start(o harness.Options, start func(context.Context, harness.Options) (*harness.Cluster, error)) {
	w.t.Helper()
	o.Bin, o.Dir = bin, filepath.Join(w.dir, "cluster")
	if o.Sources == nil {
		o.Sources = w.sources("/")
	}
	w.sourceNames = slices.Collect(maps.Keys(o.Sources))
	if o.Settings == nil {
		o.Settings = brisk()
	}
	ctx, cancel := w.soon()
	defer cancel()
	cluster, err := start(ctx, o)
	if cluster != nil {
		w.t.Cleanup(func() { require.NoError(w.t, cluster.Close()) })
	}
	require.NoError(w.t, err)
	w.cluster = cluster
}

// brisk shortens leases and pauses, so that faults are noticed within a test's time.
func brisk() harness.Settings {
	return harness.Settings{
		"scheduler.lease_ms": 1000, "scheduler.renew_ms": 300, "scheduler.runner_grace_ms": 5000,
		"scheduler.lease_margin_ms": 1000, "dispatch.attempt_timeout_ms": 5000, "dispatch.retry.max_ms": 1000,
		"dispatch.breaker_failures": 0,
	}
}

// sources are one of each provider, delivered to a path of the receiver.
func (w *world) sources(path string) map[string]any {
	return map[string]any{
		"raw": map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.sink(path)},
		"pay": map[string]any{
			"verify": map[string]any{"type": "stripe", "secret": stripeSecret},
			"dedupe": map[string]any{"preset": "stripe"}, "sinks": w.sink(path),
		},
		"hub": map[string]any{
			"verify": map[string]any{"type": "github", "secret": githubSecret},
			"dedupe": map[string]any{"preset": "github"}, "sinks": w.sink(path),
		},
		"sw": map[string]any{
			"verify": map[string]any{"type": "standard_webhooks", "secret": swSecret},
			"dedupe": map[string]any{"preset": "standard_webhooks"}, "sinks": w.sink(path),
		},
	}
}

func (w *world) sink(path string) []any {
	return []any{map[string]any{"type": "http", "url": w.receiver.URL(path), "secret": receiver.Secret, "timeout_ms": 2000}}
}

// makers play the providers of sources.
func (w *world) makers() []load.Maker {
	w.t.Helper()
	g, err := load.NewGitHub(context.Background(), "hub", githubSecret)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, g.Close()) })
	sw, err := load.StandardWebhooks("sw", swSecret)
	require.NoError(w.t, err)
	return []load.Maker{load.Plain("raw", 700), load.Stripe("pay", stripeSecret), g.Make, sw}
}

// send begins a load of all providers at 200 events a second, unless cfg says otherwise.
func (w *world) send(cfg load.Config) {
	w.t.Helper()
	if cfg.Makers == nil {
		cfg.Makers = w.makers()
	}
	if cfg.Targets == nil {
		cfg.Targets = w.cluster.Targets
	}
	if cfg.Workers == 0 {
		cfg.Workers, cfg.Rate = 32, 200
	}
	cfg.Dir = w.dir
	run, err := load.Start(context.Background(), cfg)
	require.NoError(w.t, err)
	w.load = run
	w.t.Cleanup(func() { _ = run.Stop() })
}

// flow returns when n more hooks were acknowledged: the product is at work.
func (w *world) flow(n int) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(w.t, w.load.WaitAcked(ctx, n))
}

// disturbed records a fault from its beginning until the product has recovered. do returns at that moment.
func (w *world) disturbed(kind history.Kind, target string, do func()) {
	w.t.Helper()
	f := history.Fault{Kind: kind, Target: target, From: time.Now()}
	do()
	f.To = time.Now()
	w.faults = append(w.faults, f)
}

func (w *world) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// finish ends the load, waits until everything acknowledged has reached its end, and judges the run.
func (w *world) finish() check.Report {
	w.t.Helper()
	report := w.verdict(patience)
	require.Empty(w.t, report.Violations)
	return report
}

// verdict is finish for runs that may be found guilty: after wait, what has not arrived is taken for lost.
func (w *world) verdict(wait time.Duration) check.Report {
	w.t.Helper()
	require.NoError(w.t, w.load.Stop())
	dead := w.settle(wait)
	w.rest()
	require.NoError(w.t, w.receiver.Close())
	in := check.Input{DeadLetters: dead, Faults: w.faults}
	var err error
	in.Requests, err = history.Read[history.Request](w.load.LogPath())
	require.NoError(w.t, err)
	in.Attempts, err = history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(w.t, err)
	report := check.Run(in)
	w.t.Logf("%d requests, %d acked, %d delivered, %d dead, %d told to nobody, %d duplicates of which faults explain %d, %d unanswered",
		len(in.Requests), report.Acked, report.Delivered, report.Dead, report.Unknown, report.Duplicates, report.Explained, report.Unanswered)
	w.nothingPrivateInLogs()
	return report
}

// settle returns when every acknowledged hook was delivered or is listed as dead, or after wait; the checker then says
// which is missing.
func (w *world) settle(wait time.Duration) []history.DeadLetter {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	enough, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	acked := w.load.Acked()
	for {
		dead, err := w.cluster.DeadLetters(ctx)
		require.NoError(w.t, err)
		listed := map[string]bool{}
		for _, d := range dead {
			listed[d.ID] = true
		}
		acked = slices.DeleteFunc(acked, func(id string) bool { return listed[id] })
		slice, stop := context.WithTimeout(enough, time.Second)
		err = w.receiver.Wait(slice, func() bool { return len(w.receiver.Lacks(acked)) == 0 })
		stop()
		if err == nil || enough.Err() != nil {
			return dead
		}
	}
}

// rest returns when no delivery is pending or running any more, which the removal of every source proves.
func (w *world) rest() {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	failed := make(chan error, len(w.sourceNames))
	for _, name := range w.sourceNames {
		go func() { failed <- w.remove(ctx, name) }()
	}
	for range w.sourceNames {
		require.NoError(w.t, <-failed)
	}
}

// remove deletes a source as soon as nothing of it is pending.
func (w *world) remove(ctx context.Context, source string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, body, err := w.try(ctx, http.MethodDelete, w.cluster.Admin+"/v1/tenants/default/sources/"+source, nil)
		switch {
		case err != nil:
			return err
		case status == http.StatusNoContent:
			return nil
		case status != http.StatusConflict && status != http.StatusServiceUnavailable:
			return fmt.Errorf("remove source %s: %d %s", source, status, body)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("remove source %s: deliveries are still pending: %d %s", source, status, body)
		}
	}
}

// nothingPrivateInLogs: L48, whatever happened: no secret and no body. The store's own files, which hold both, are no logs.
func (w *world) nothingPrivateInLogs() {
	w.t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.dir, "cluster", "*.log"))
	require.NoError(w.t, err)
	require.NotEmpty(w.t, logs)
	for _, path := range logs {
		text, err := os.ReadFile(path)
		require.NoError(w.t, err)
		for _, private := range []string{stripeSecret, githubSecret, swSecret, receiver.Secret, load.Mark} {
			if strings.Contains(string(text), private) {
				w.t.Errorf("L48: %s holds a secret or a body", path)
			}
		}
	}
}

// nobodyDied fails the test where a process ended by itself.
func (w *world) nobodyDied() {
	w.t.Helper()
	for _, p := range w.cluster.All() {
		require.Empty(w.t, p.Died(), fmt.Sprintf("see %s", w.dir))
	}
}

// attemptsByPath counts what the receiver logged.
func (w *world) attemptsByPath() map[string]int {
	w.t.Helper()
	attempts, err := history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(w.t, err)
	tries := map[string]int{}
	for _, a := range attempts {
		tries[a.Path]++
	}
	return tries
}
