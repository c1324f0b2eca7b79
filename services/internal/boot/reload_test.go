package boot

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
)

// heard is a log that may be read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// reloadable runs a process of a file until the test ends. It gets what the process takes over.
func reloadable(t *testing.T, path string) (p *Process, taken chan config.Config, log *heard) {
	log = &heard{}
	taken = make(chan config.Config, 10)
	built := make(chan *Process)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, config.RoleAll, path, func(_ context.Context, p *Process) error {
			p.OnReload(func(c config.Config) { taken <- c })
			p.Add(run.Part{Name: "role", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }})
			built <- p
			return nil
		}, log)
	}()
	t.Cleanup(func() {
		cancel()
		require.Zero(t, <-ended)
	})
	return <-built, taken, log
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestAHangUpHasTheProcessTakeOverWhatCanChange(t *testing.T) {
	path := file(t, "dispatch: {concurrency: 2}\n")
	_, taken, log := reloadable(t, path)
	write(t, path, "http: {port: 4100}\ndispatch: {concurrency: 7, batch: 9}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	c := <-taken
	require.Equal(t, 7, *c.Dispatch.Concurrency)
	require.Equal(t, 128, c.Dispatch.Batch, "it waits for a restart")
	require.Equal(t, 4000, c.HTTP.Port)
	require.Eventually(t, func() bool {
		return bytes.Contains([]byte(log.String()), []byte(`"applied":["dispatch.concurrency"],"after_restart":["http.port","dispatch.batch"]`))
	}, 10*time.Second, time.Millisecond)
}

func TestABadFileChangesNothingAndEveryFaultIsLogged(t *testing.T) {
	path := file(t, "")
	p, taken, log := reloadable(t, path)
	write(t, path, "dispatch: {concurrency: 0, batch: 9999}\nnope: 1\n")
	_, _, err := p.Reload()
	var faults *config.Error
	require.ErrorAs(t, err, &faults)
	for _, fault := range []string{
		"dispatch.concurrency must be 1 to 1000000, got 0", "dispatch.batch must be 1 to 4096, got 9999", "nope is not a known key",
	} {
		require.Eventually(t, func() bool { return strings.Contains(log.String(), fault) }, 10*time.Second, time.Millisecond)
		require.ErrorContains(t, err, fault)
	}
	require.Empty(t, taken)
	require.NoError(t, os.Remove(path))
	_, _, err = p.Reload()
	require.Error(t, err)
	require.Empty(t, taken)

	write(t, path, "dispatch: {concurrency: 3}\n")
	applied, restart, err := p.Reload()
	require.NoError(t, err)
	require.Equal(t, []string{"dispatch.concurrency"}, applied)
	require.Empty(t, restart)
	require.Equal(t, 3, *(<-taken).Dispatch.Concurrency)
	applied, _, err = p.Reload()
	require.NoError(t, err)
	require.Empty(t, applied, "nothing has changed since")
	require.Empty(t, taken)
}

// Who writes a file anew truncates it first, and a hang-up may come in between.
func TestAFileThatSaysNothingChangesNothing(t *testing.T) {
	path := file(t, "dispatch: {concurrency: 2}\n")
	p, taken, _ := reloadable(t, path)
	for _, text := range []string{"", "# to be continued\n", "null\n"} {
		write(t, path, text)
		_, _, err := p.Reload()
		require.ErrorContains(t, err, "the file must have content, got nothing")
	}
	require.Empty(t, taken)
}

func TestAHangUpEndsNoProcessThatHasNothingToTakeOver(t *testing.T) {
	path := file(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	log := &heard{}
	code := Run(ctx, config.RoleAll, path, func(_ context.Context, p *Process) error {
		p.Add(run.Part{Name: "role", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }})
		write(t, path, "dispatch: {concurrency: 3}\n")
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
		go func() {
			defer cancel()
			for !bytes.Contains([]byte(log.String()), []byte(`"after_restart":["dispatch.concurrency"]`)) && t.Context().Err() == nil {
				<-time.After(time.Millisecond)
			}
		}()
		return nil
	}, log)
	require.Zero(t, code)
}
