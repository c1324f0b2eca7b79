package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// Exit codes of ankusa apply.
const (
	applied     = 0
	applyFailed = 1
	badUsage    = 2
	differs     = 3
	badFile     = 78
)

// TestApplyBringsAServerToWhatAFileSays drives the operator's tool as a process against a running product.
func TestApplyBringsAServerToWhatAFileSays(t *testing.T) {
	w := newWorld(t)
	w.start(harness.Options{Sources: map[string]any{"raw": map[string]any{
		"verify": map[string]any{"type": "none"}, "sinks": w.sink("/"),
	}}}, harness.StartOne)
	first := fmt.Sprintf(`
sources:
  fresh:
    verify: {type: stripe, secret: %q}
    sinks: [{type: http, url: %q, secret: %q}]
  own:
    tenant: acme
    verify: {type: none}
    sinks: [{type: log}]
`, stripeSecret, w.receiver.URL("/one"), receiver.Secret)
	fresh := w.cluster.Admin + "/v1/tenants/default/sources/fresh"
	ctx, cancel := w.soon()
	defer cancel()

	w.apply(first, differs, []string{"+ fresh: create", "+ acme.own: create"}, "--dry-run")
	status, _ := w.request(ctx, http.MethodGet, fresh, nil)
	require.Equal(t, http.StatusNotFound, status, "a dry run changes nothing")
	w.apply(first, applied, []string{"+ fresh: create", "+ acme.own: create"})
	status, body := w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/tenants/acme/sources/own", nil)
	require.Equal(t, http.StatusOK, status, body)
	w.signed("/one")

	w.apply(first, applied, []string{"= acme.own: unchanged", "= fresh: unchanged, but for the secrets"}, "--dry-run")
	w.apply(first, applied, []string{"= acme.own: unchanged", "= fresh: rewrite, for its secrets"})

	second := fmt.Sprintf(`
sources:
  fresh:
    verify: {type: stripe, secret: %q}
    retry: {max_attempts: 7}
    sinks: [{type: http, url: %q, secret: %q}]
`, stripeSecret, w.receiver.URL("/two"), receiver.Secret)
	changes := []string{
		"~ fresh: update",
		fmt.Sprintf("    ~ sinks.0.url: %s -> %s", w.receiver.URL("/one"), w.receiver.URL("/two")), "retry.max_attempts", "7",
	}
	w.apply(second, differs, changes, "--dry-run")
	_, body = w.request(ctx, http.MethodGet, fresh, nil)
	require.Contains(t, body, w.receiver.URL("/one"), "a dry run changes nothing")
	w.apply(second, applied, changes)
	require.Eventually(t, func() bool {
		w.signed("")
		return w.attemptsByPath()["/two"] > 0
	}, 10*time.Second, 100*time.Millisecond, "hooks go where the file says")

	w.apply(second, differs, []string{"- raw: delete"}, "--dry-run", "--prune")
	w.apply(second, applied, []string{"- raw: delete"}, "--prune")
	status, _ = w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/tenants/default/sources/raw", nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/tenants/acme/sources/own", nil)
	require.Equal(t, http.StatusOK, status, "of a tenant that the file does not name")
}

func TestApplySaysWhatFailedAndGoesOn(t *testing.T) {
	w := newWorld(t)
	w.start(harness.Options{Sources: map[string]any{"raw": map[string]any{
		"verify": map[string]any{"type": "none"}, "sinks": w.sink("/"),
	}}}, harness.StartOne)
	// The server knows what may be reached, the tool does not.
	out := w.apply(`
sources:
  bad: {verify: {type: none}, sinks: [{type: http, url: "http://10.1.2.3/", secret: "whsec_ZTJlLXJlY2VpdmVyLXNpZ25pbmcta2V5LTAx"}]}
  good: {verify: {type: none}, sinks: [{type: log}]}
`, applyFailed, []string{"! bad: create: status 4", "sinks.0.url", "+ good: create"})
	require.NotContains(t, out, "10.1.2.3")
	ctx, cancel := w.soon()
	defer cancel()
	status, _ := w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/tenants/default/sources/good", nil)
	require.Equal(t, http.StatusOK, status)

	good := "sources: {good: {verify: {type: none}, sinks: [{type: log}]}}\n"
	w.apply(good, applyFailed, []string{"! good:", "connection refused"}, "--server", "http://127.0.0.1:9")
	w.apply(good, badUsage, []string{"--server must be an absolute http or https URL"}, "--server", "nowhere")
}

// TestApplyRefusesABadFileWithEveryFault asks no server: none runs.
func TestApplyRefusesABadFileWithEveryFault(t *testing.T) {
	w := newWorld(t)
	out := w.apply(`
sources:
  pay: {verify: {type: stripe, secret: "`+stripeSecret+`", tolerance: never}, sinks: [{type: pigeon}]}
  "a b": {verify: {type: none}, sinks: [{type: log}]}
  hub: {verify: {type: github}, sinks: []}
  raw: {verify: {type: none}, sink: [{type: log}], retry: {max_attempts: 0}}
`, badFile, []string{
		"sources.pay.verify.tolerance", "sources.pay.sinks.0.type", "a b", "sources.hub.verify.secret", "sources.hub.sinks",
		"sources.raw.sink", "sources.raw.retry.max_attempts",
	}, "--server", "http://127.0.0.1:9")
	require.NotContains(t, out, stripeSecret)
	require.NotContains(t, out, "connection refused")
	w.apply("sources: [", badFile, nil)
	w.apply("sources: {pay: {verify: {type: stripe, secret: \"${ANKUSA_E2E_UNSET}\"}}}\n", badFile, []string{"ANKUSA_E2E_UNSET"})
	require.Contains(t, w.tool(badFile, "apply", "-f", filepath.Join(w.dir, "absent.yml")), "absent.yml")
	require.Contains(t, w.tool(badUsage, "apply"), `"file" not set`)
}

// apply runs ankusa apply on a file of that text and demands an exit code and what it says.
func (w *world) apply(file string, code int, says []string, args ...string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, "apply.yml")
	require.NoError(w.t, os.WriteFile(path, []byte(file), 0o600))
	command := []string{"apply", "-f", path}
	if w.cluster != nil {
		command = append(command, "--server", w.cluster.Admin)
	}
	out := w.tool(code, append(command, args...)...)
	for _, text := range says {
		require.Contains(w.t, out, text)
	}
	for _, secret := range []string{stripeSecret, receiver.Secret} {
		require.NotContains(w.t, out, secret, "L48")
	}
	return out
}

// tool runs ankusa to its end and returns all that it says.
func (w *world) tool(code int, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "ankusa"), args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(w.t, err)
	}
	got := 0
	if exit != nil {
		got = exit.ExitCode()
	}
	require.Equal(w.t, code, got, string(out))
	return string(out)
}

// signed posts an event to the source fresh and, where a path is named, waits until it has arrived there.
func (w *world) signed(path string) {
	w.t.Helper()
	e, err := load.Stripe("fresh", stripeSecret)(int(time.Now().UnixNano()))
	require.NoError(w.t, err)
	status, answer := w.post("/webhooks/fresh", e.Body, "Stripe-Signature", e.Header.Get("Stripe-Signature"))
	require.Equal(w.t, http.StatusCreated, status, answer)
	if path == "" {
		return
	}
	ctx, cancel := w.soon()
	defer cancel()
	id, ok := answer["id"].(string)
	require.True(w.t, ok)
	require.NoError(w.t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks([]string{id})) == 0 }))
	require.Positive(w.t, w.attemptsByPath()[path])
}
