package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/config"
)

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// served is one `ankusa serve` within the test.
type served struct {
	t    *testing.T
	out  *output
	stop func() int
	// hooks and admin are the URLs of its listeners.
	hooks, admin string
}

const head = `
http: {ip: 127.0.0.1, port: 0}
admin: {port: 0}
log: {level: debug}
egress: {allow_http: true, allow_cidrs: [127.0.0.0/8]}
runner: {drain_ms: 1000}
`

// serve runs the one-process product on a directory until stop is called.
func serve(t *testing.T, dir, text string) *served {
	t.Helper()
	s := start(t, write(t, fmt.Sprintf("%sstore: {dir: %q}\n%s", head, dir, text)))
	s.hooks, s.admin = s.address("hooks"), s.address("admin")
	s.eventually(func() bool {
		status, _ := request(t, http.MethodGet, s.admin+"/ready", "")
		return status == http.StatusOK
	})
	return s
}

// start runs `ankusa serve` on a file until stop is called.
func start(t *testing.T, path string, flags ...string) *served {
	t.Helper()
	s := &served{t: t, out: &output{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		code, _ := command(ctx, s.out, append([]string{"serve", "--config", path}, flags...)...)
		ended <- code
	}()
	s.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// address waits until the process says where it listens.
func (s *served) address(what string) string {
	s.t.Helper()
	line := regexp.MustCompile(`"for":"` + what + `","address":"([^"]+)"`)
	var found []string
	s.eventually(func() bool {
		found = line.FindStringSubmatch(s.out.String())
		return found != nil
	})
	return "http://" + found[1]
}

func (s *served) eventually(holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, 20*time.Second, 5*time.Millisecond, "log so far:\n%s", s.out)
}

// command runs a command line and returns its exit code and what it prints.
func command(ctx context.Context, stderr io.Writer, arguments ...string) (int, string) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(stderr)
	root.SetArgs(arguments)
	code := report(root.ExecuteContext(ctx), &out)
	return code, out.String()
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ankusa.yml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	return request(t, http.MethodPost, url, body)
}

func request(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func TestABadFileIsNamedAndEndsWith78BeforeAnythingIsBound(t *testing.T) {
	path := write(t, "http: {port: 70000}\nquarantine: {burst: 1}\n")
	for _, name := range []string{"serve", "check-config", "print-config"} {
		var stderr output
		code, out := command(t.Context(), &stderr, name, "--config", path)
		require.Equal(t, config.ExitCode, code)
		for _, want := range []string{
			"ankusa.yml:1: http.port must be 0 to 65535, got 70000", "ankusa.yml:2: quarantine is not supported yet",
		} {
			require.Contains(t, out+stderr.String(), want)
		}
		require.NotContains(t, stderr.String(), "listening")
	}
}

func TestCheckConfigSaysWhatWouldRun(t *testing.T) {
	path := write(t, "store: {dir: /srv/a}\nadmin: {enabled: false}\nsources: {a: {verify: {type: none}, sinks: [{type: log}]}}\n")
	code, out := command(t.Context(), io.Discard, "check-config", "--config", path)
	require.Zero(t, code)
	require.Equal(t, "roles: ingest, scheduler, sink-runner\nsources: a\nstore: local (/srv/a)\n", out)
}

func TestAnUnknownCommandIsBadUsage(t *testing.T) {
	for _, arguments := range [][]string{{"fly"}, {"serve", "now"}, {"apply"}, {"apply", "-f", "x", "--server", "nowhere"}} {
		code, _ := command(t.Context(), io.Discard, arguments...)
		require.Contains(t, []int{exitUsage, config.ExitCode}, code, arguments)
	}
}

func TestAnAddressThatIsTakenIsAFailureThatLeavesNothingOpen(t *testing.T) {
	first := serve(t, t.TempDir(), "")
	port := first.hooks[strings.LastIndexByte(first.hooks, ':')+1:]
	dir := t.TempDir()
	path := write(t, fmt.Sprintf("http: {ip: 127.0.0.1, port: %s}\nstore: {dir: %q}\n", port, dir))
	var stderr output
	code, _ := command(t.Context(), &stderr, "serve", "--config", path)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr.String(), "listen for hooks")
	serve(t, dir, "") // the store is not held
}

func TestADirectoryThatIsInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir, "")
	path := write(t, fmt.Sprintf("%sstore: {dir: %q}\n", head, dir))
	var stderr output
	code, _ := command(t.Context(), &stderr, "serve", "--config", path)
	require.Equal(t, exitFailed, code)
	require.NotContains(t, stderr.String(), "listening")
}
