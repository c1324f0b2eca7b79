package scenario_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// TestTenantsComeFromTheURLAndStayApart: http.routing tenant_path, with sources of one tenant and shared ones.
func TestTenantsComeFromTheURLAndStayApart(t *testing.T) {
	for name, start := range map[string]func(*world, harness.Options){
		"one process": func(w *world, o harness.Options) { w.start(o, harness.StartOne) },
		"four kinds": func(w *world, o harness.Options) {
			o.Schedulers, o.Ingests, o.Runners = 1, 1, 1
			w.start(o, harness.StartFour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := brisk()
			s["http.routing"] = "tenant_path"
			start(w, harness.Options{Settings: s, Sources: map[string]any{
				"open": map[string]any{"verify": map[string]any{"type": "none"}, "trust_url_tenant": true, "sinks": w.sink("/open")},
				"pay": map[string]any{
					"verify": map[string]any{"type": "stripe", "secret": stripeSecret},
					"dedupe": map[string]any{"preset": "stripe"}, "sinks": w.sink("/pay"),
				},
			}})
			tenantPaths(t, w)
			w.nobodyDied()
		})
	}
}

func tenantPaths(t *testing.T, w *world) {
	ctx, cancel := w.soon()
	defer cancel()
	admin := w.cluster.Admin + "/v1/tenants/"
	own, err := json.Marshal(map[string]any{"name": "own", "verify": map[string]any{"type": "none"}, "sinks": w.sink("/own")})
	require.NoError(t, err)
	status, body := w.request(ctx, http.MethodPost, admin+"acme/sources", own)
	require.Equal(t, http.StatusCreated, status, body)
	blind, err := json.Marshal(map[string]any{"name": "blind", "verify": map[string]any{"type": "none"}, "sinks": w.sink("/")})
	require.NoError(t, err)
	status, body = w.request(ctx, http.MethodPost, admin+"default/sources", blind)
	require.Equal(t, http.StatusBadRequest, status, "a shared source that believes any URL must say so")
	require.Contains(t, body, "trust_url_tenant")

	for _, path := range []string{
		"/webhooks/open", "/webhooks/other/own", "/webhooks/acme/", "/webhooks//open", "/webhooks/acme/own/more",
		"/webhooks/a.b/open", "/webhooks/acme%2Fown", "/webhooks/acme.own",
	} {
		status, answer := w.post(path, []byte("x"))
		require.Equal(t, http.StatusNotFound, status, path)
		require.Equal(t, "unknown_source", answer["error"], path)
	}

	e, err := load.Stripe("pay", stripeSecret)(1)
	require.NoError(t, err)
	pay := []string{"Stripe-Signature", e.Header.Get("Stripe-Signature")}
	acme := w.accepted("/webhooks/acme/pay", e.Body, pay...)
	other := w.accepted("/webhooks/other/pay", e.Body, pay...)
	require.NotEqual(t, acme, other, "L19: a key of one tenant is not that of another")
	require.Equal(t, acme, w.accepted("/webhooks/acme/pay", e.Body, pay...), "L09")
	hooks := []string{acme, other, w.accepted("/webhooks/acme/own", []byte("mine")), w.accepted("/webhooks/other/open", []byte("theirs"))}
	require.NoError(t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks(hooks)) == 0 }))
	require.Equal(t, map[string]string{hooks[0]: "pay", hooks[1]: "pay", hooks[2]: "acme.own", hooks[3]: "open"}, w.sourcesOf())

	for tenant, want := range map[string]int{"acme": http.StatusOK, "other": http.StatusNotFound, "default": http.StatusNotFound} {
		status, body := w.request(ctx, http.MethodGet, admin+tenant+"/hooks/"+acme, nil)
		require.Equal(t, want, status, body)
	}

	w.receiver.Behave("/open", receiver.Answer(http.StatusGone))
	dead := w.accepted("/webhooks/acme/open", []byte("unwanted"))
	require.Eventually(t, func() bool {
		_, body := w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/dlq?tenant=acme", nil)
		return strings.Contains(body, dead)
	}, patience, 100*time.Millisecond)
	_, body = w.request(ctx, http.MethodGet, w.cluster.Admin+"/v1/dlq?tenant=other", nil)
	require.NotContains(t, body, dead)
}

// accepted posts and returns the hook's id.
func (w *world) accepted(path string, body []byte, header ...string) string {
	w.t.Helper()
	status, answer := w.post(path, body, header...)
	require.Equal(w.t, http.StatusCreated, status, answer)
	id, ok := answer["id"].(string)
	require.True(w.t, ok, answer)
	return id
}

// sourcesOf is the source that each hook's deliveries named.
func (w *world) sourcesOf() map[string]string {
	w.t.Helper()
	attempts, err := history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(w.t, err)
	sources := map[string]string{}
	for _, a := range attempts {
		sources[a.ID] = a.Source
	}
	return sources
}
