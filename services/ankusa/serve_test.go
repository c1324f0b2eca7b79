package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver records the requests that a sink makes.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []received
	code int
}

type received struct {
	header http.Header
	body   string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{code: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, received{q.Header.Clone(), string(body)})
		w.WriteHeader(r.code)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

const sinkSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func httpSource(name, url string) string {
	return fmt.Sprintf("  %s: {verify: {type: none}, sinks: [{type: http, url: %q, secret: %s}, {type: log}]}\n", name, url, sinkSecret)
}

func accepted(t *testing.T, status int, answer string) string {
	t.Helper()
	require.Equal(t, http.StatusCreated, status, answer)
	var body struct{ ID, Status string }
	require.NoError(t, json.Unmarshal([]byte(answer), &body))
	require.Equal(t, "accepted", body.Status)
	return body.ID
}

func TestAHookGoesInSignedDeliveredAndConfirmed(t *testing.T) {
	r := newReceiver(t)
	s := serve(t, t.TempDir(), "sources:\n"+httpSource("shop", r.URL+"/in"))
	status, answer := post(t, s.hooks+"/webhooks/shop", `{"n":"é🦣"}`)
	id := accepted(t, status, answer)
	s.eventually(func() bool { return len(r.all()) == 1 })

	got := r.all()[0]
	require.Equal(t, `{"n":"é🦣"}`, got.body)
	require.Equal(t, id, got.header.Get("webhook-id"))
	require.Equal(t, "shop", got.header.Get("x-ankusa-source"))
	verifier, err := standardwebhooks.NewWebhook(sinkSecret)
	require.NoError(t, err)
	require.NoError(t, verifier.Verify([]byte(got.body), got.header))

	for _, path := range []string{s.hooks + "/health", s.hooks + "/ready", s.admin + "/health", s.admin + "/ready"} {
		status, answer = request(t, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, "%s: %s", path, answer)
	}
	s.eventually(func() bool {
		_, metrics := request(t, http.MethodGet, s.admin+"/metrics", "")
		return containsAll(metrics, `ankusa_dispatch_deliveries_total{instance="ankusa",result="delivered",sink="http"} 1`)
	})
	require.Zero(t, s.stop())
	require.Contains(t, s.out.String(), `"message":"stopped"`)
}

func TestI2_AHookThatWaitsIsDeliveredAfterARestart(t *testing.T) {
	r := newReceiver(t)
	r.code = http.StatusServiceUnavailable
	dir, sources := t.TempDir(), "sources:\n"+httpSource("shop", r.URL)
	s := serve(t, dir, sources)
	status, answer := post(t, s.hooks+"/webhooks/shop", "later")
	id := accepted(t, status, answer)
	s.eventually(func() bool { return len(r.all()) > 0 })
	require.Zero(t, s.stop())

	r.mu.Lock()
	r.code, r.got = http.StatusOK, nil
	r.mu.Unlock()
	s = serve(t, dir, sources)
	s.eventually(func() bool { return len(r.all()) > 0 })
	require.Equal(t, id, r.all()[0].header.Get("webhook-id"))
	require.Contains(t, s.out.String(), `"source_id":"shop","change":"unchanged"`)
}

func TestSourcesOfTheFileAreCreatedOrUpdatedAndNeverDeleted(t *testing.T) {
	dir := t.TempDir()
	one := "sources:\n  a: {verify: {type: none}, sinks: [{type: log}]}\n  b: {verify: {type: none}, sinks: [{type: log}]}\n"
	s := serve(t, dir, one)
	require.Contains(t, s.out.String(), `"source_id":"b","change":"created"`)
	require.Zero(t, s.stop())

	s = serve(t, dir, "sources:\n  a: {verify: {type: none}, max_headers: 7, sinks: [{type: log}]}\n")
	require.Contains(t, s.out.String(), `"source_id":"a","change":"updated"`)
	status, answer := request(t, http.MethodGet, s.admin+"/v1/tenants/default/sources", "")
	require.Equal(t, http.StatusOK, status)
	require.True(t, containsAll(answer, `"name":"a"`, `"max_headers":7`, `"name":"b"`), answer)
	require.Zero(t, s.stop())

	path := write(t, fmt.Sprintf("%sstore: {dir: %q}\nsources:\n  a: {verify: {type: none}, spread: 4, sinks: [{type: log}]}\n", head, dir))
	var stderr output
	code, _ := command(t.Context(), &stderr, "serve", "--config", path)
	require.Equal(t, 78, code)
	require.Contains(t, stderr.String(), "sources.a.spread must be 1")
}

func TestL48_NoSecretAndNoPayloadIsInTheLogOfARun(t *testing.T) {
	r := newReceiver(t)
	r.code = http.StatusBadRequest
	s := serve(t, t.TempDir(), fmt.Sprintf(`sources:
  signed: {verify: {type: github, secret: [verify-s3cret, older-s3cret]}, sinks: [{type: log}]}
  shop: {verify: {type: none}, sinks: [{type: http, url: %q, secret: sink-s3cret, headers: {authorization: Bearer header-s3cret}}]}
`, r.URL+"/path-s3cret?key=query-s3cret"))
	status, _ := post(t, s.hooks+"/webhooks/signed", `{"body":"payload-s3cret"}`)
	require.Equal(t, http.StatusUnauthorized, status)
	status, answer := post(t, s.hooks+"/webhooks/shop", `{"body":"payload-s3cret"}`)
	accepted(t, status, answer)
	status, answer = request(t, http.MethodPost, s.admin+"/v1/tenants/acme/sources",
		`{"name":"x","verify":{"type":"github","secret":"api-s3cret"},"sinks":[{"type":"nothing-s3cret"}]}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.NotContains(t, answer, "api-s3cret")
	_, answer = request(t, http.MethodGet, s.admin+"/v1/tenants/default/sources", "")
	require.NotContains(t, answer, "s3cret-", answer)
	s.eventually(func() bool {
		_, dead := request(t, http.MethodGet, s.admin+"/v1/dlq", "")
		return containsAll(dead, `"error_class":"permanent"`)
	})
	require.Zero(t, s.stop())
	require.NotContains(t, s.out.String(), "s3cret")
}

func TestAPartOfTheRolesRunsAlone(t *testing.T) {
	dir := t.TempDir()
	path := write(t, fmt.Sprintf("%sstore: {dir: %q}\nsources:\n  a: {verify: {type: none}, sinks: [{type: log}]}\n", head, dir))
	s := start(t, path, "--roles", "ingest")
	s.hooks = s.address("hooks")
	status, answer := post(t, s.hooks+"/webhooks/a", "kept")
	id := accepted(t, status, answer)
	_, health := request(t, http.MethodGet, s.hooks+"/health", "")
	require.Contains(t, health, `"roles":["ingest"]`)
	require.Zero(t, s.stop())
	require.NotContains(t, s.out.String(), "leading")

	s = serve(t, dir, "")
	s.eventually(func() bool { return containsAll(s.out.String(), "hook delivered to the log", id) })

	code, _ := command(t.Context(), io.Discard, "serve", "--config", path, "--roles", "cook")
	require.Equal(t, exitUsage, code)
}
