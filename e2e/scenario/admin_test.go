package scenario_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/receiver"
)

// event is what the stream tells of one transition.
type event struct {
	Event  string `json:"event"`
	ID     string `json:"id"`
	Resume string `json:"resume"`
	Reason string `json:"reason"`
	Status int    `json:"status"`
}

func TestASourceLivesAndDiesThroughTheGateway(t *testing.T) {
	w := four(t, harness.Options{})
	ctx, cancel := w.soon()
	defer cancel()
	spec, err := json.Marshal(map[string]any{
		"name": "fresh", "verify": map[string]any{"type": "stripe", "secret": stripeSecret}, "sinks": w.sink("/hang"),
	})
	require.NoError(t, err)
	sources := w.cluster.Admin + "/v1/tenants/default/sources"

	status, body := w.request(ctx, http.MethodPost, sources, spec)
	require.Equal(t, http.StatusCreated, status, body)
	status, body = w.request(ctx, http.MethodPost, sources, spec)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, `"source_exists"`)
	status, body = w.request(ctx, http.MethodGet, sources+"/fresh", nil)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "[REDACTED]")
	require.NotContains(t, body, stripeSecret)

	open, err := json.Marshal(map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.sink("/hang")})
	require.NoError(t, err)
	status, body = w.request(ctx, http.MethodPut, sources+"/fresh", open)
	require.Equal(t, http.StatusOK, status, body)

	// Every ingest knows it within a second; what it accepts keeps it from being deleted.
	w.receiver.Behave("/hang", receiver.Hang())
	for _, target := range w.cluster.Targets {
		require.Eventually(t, func() bool {
			status, _ := w.request(ctx, http.MethodPost, target+"/webhooks/fresh", []byte("x"))
			return status == http.StatusCreated
		}, 5*time.Second, 50*time.Millisecond)
	}
	status, body = w.request(ctx, http.MethodDelete, sources+"/fresh", nil)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, `"source_has_deliveries"`)

	w.receiver.Behave("/hang", receiver.Answer(http.StatusOK))
	require.NoError(t, w.remove(ctx, "fresh"))
	for _, target := range w.cluster.Targets {
		require.Eventually(t, func() bool {
			status, _ := w.request(ctx, http.MethodPost, target+"/webhooks/fresh", []byte("x"))
			return status == http.StatusNotFound
		}, 5*time.Second, 50*time.Millisecond)
	}
}

func TestEventsTellWhatHappenedToAHookAndResume(t *testing.T) {
	w := four(t, harness.Options{})
	w.receiver.Behave("/", receiver.Script(receiver.Answer(http.StatusServiceUnavailable), receiver.Answer(http.StatusOK)))
	ctx, cancel := w.soon()
	defer cancel()

	watch, stop := w.watch(ctx, url.Values{"source_id": {"raw"}})
	status, answer := w.post("/webhooks/raw", []byte("first"))
	require.Equal(t, http.StatusCreated, status)
	first, ok := answer["id"].(string)
	require.True(t, ok)

	var kinds []string
	var token string
	for len(kinds) == 0 || kinds[len(kinds)-1] != "delivered" {
		e := w.nextEvent(watch)
		require.Equal(t, first, e.ID)
		kinds = append(kinds, e.Event)
		token = e.Resume
		if e.Event == "failed" {
			require.Equal(t, "http: status 503", e.Reason)
			require.Equal(t, http.StatusServiceUnavailable, e.Status)
		}
	}
	require.Equal(t, []string{"accepted", "leased", "failed", "leased", "delivered"}, kinds)
	stop()

	_, answer = w.post("/webhooks/raw", []byte("second"))
	resumed, stop := w.watch(ctx, url.Values{"source_id": {"raw"}, "outcome": {"delivered"}, "resume": {token}})
	defer stop()
	e := w.nextEvent(resumed)
	for e.ID == first {
		e = w.nextEvent(resumed) // at least once
	}
	require.Equal(t, "delivered", e.Event)
	require.Equal(t, answer["id"], e.ID)
}

// watch opens the stream of events.
func (w *world) watch(ctx context.Context, filter url.Values) (*bufio.Scanner, func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.cluster.Admin+"/v1/events?"+filter.Encode(), nil)
	require.NoError(w.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, resp.StatusCode)
	return bufio.NewScanner(resp.Body), func() {
		cancel()
		_ = resp.Body.Close()
	}
}

func (w *world) nextEvent(lines *bufio.Scanner) event {
	w.t.Helper()
	require.True(w.t, lines.Scan(), "the stream ended: %v", lines.Err())
	var e event
	require.NoError(w.t, json.Unmarshal(lines.Bytes(), &e), fmt.Sprintf("%q", lines.Text()))
	return e
}
