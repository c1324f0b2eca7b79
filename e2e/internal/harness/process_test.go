package harness

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is also the program that the tests start.
func TestMain(m *testing.M) {
	if addr := os.Getenv("HARNESS_TEST_LISTEN"); addr != "" {
		serve(addr)
		return
	}
	os.Exit(m.Run())
}

func serve(addr string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "# HELP x y\ncalls_total{class=\"lease\",op=\"get\"} 12\nup 1\n")
	})
	server := &http.Server{Addr: addr, Handler: mux}
	go func() { _ = server.ListenAndServe() }()
	<-ctx.Done()
}

func program(t *testing.T) *Process {
	t.Helper()
	port, err := FreePort(t.Context())
	require.NoError(t, err)
	p := &Process{
		Name: "program", binary: os.Args[0], env: []string{"HARNESS_TEST_LISTEN=" + Address(port)},
		Ready: url(port) + "/ready", log: filepath.Join(t.TempDir(), "log"),
	}
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestAProcessIsKilledAndStartedAgainOnItsPort(t *testing.T) {
	p := program(t)
	require.NoError(t, p.Start(t.Context()))
	first := p.PID()
	require.NoError(t, p.Kill())
	require.False(t, p.Running())
	require.NoError(t, p.Start(t.Context()))
	require.NotEqual(t, first, p.PID())
	require.NoError(t, p.Terminate(t.Context()))
	require.Empty(t, p.Died())
}

func TestAPausedProcessAnswersOnlyAfterItWasResumed(t *testing.T) {
	p := program(t)
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.Pause(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.WaitReady(ctx), context.DeadlineExceeded)
	require.NoError(t, p.Resume())
	require.NoError(t, p.WaitReady(t.Context()))
}

func TestAProcessThatEndsByItselfIsToldOf(t *testing.T) {
	p := program(t)
	require.NoError(t, p.Start(t.Context()))
	_, _ = get(t.Context(), p.Ready[:len(p.Ready)-len("ready")]+"die")
	<-p.ended()
	require.Len(t, p.Died(), 1)
	require.Contains(t, p.Died()[0], "exit status 3")
}

func TestAProgramThatCannotStartIsAnError(t *testing.T) {
	p := program(t)
	p.binary = filepath.Join(t.TempDir(), "missing")
	require.ErrorIs(t, p.Start(t.Context()), os.ErrNotExist)
	require.False(t, p.Running())
}

func TestMetricsAndProcessorTimeAreRead(t *testing.T) {
	p := program(t)
	require.NoError(t, p.Start(t.Context()))
	samples, err := Scrape(t.Context(), p.Ready[:len(p.Ready)-len("ready")]+"metrics")
	require.NoError(t, err)
	require.Equal(t, []Sample{
		{Name: "calls_total", Labels: map[string]string{"class": "lease", "op": "get"}, Value: 12},
		{Name: "up", Labels: map[string]string{}, Value: 1},
	}, samples)
	_, err = CPU(p.PID())
	require.NoError(t, err)
}

func TestSettingsNestByTheirDots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yml")
	require.NoError(t, Settings{"a.b": 1, "a.c": true}.with(Settings{"a.b": 2, "d": []int{3}}).write(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":{"b":2,"c":true},"d":[3]}`, string(text))
}
