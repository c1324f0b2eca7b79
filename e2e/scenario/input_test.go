package scenario_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v82/webhook"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
)

// bodyCap is small here, so that bodies over it are.
const bodyCap = 64 << 10

// TestBadInputIsRefusedAndNothingOfItIsDelivered runs beside a good load, which must not notice.
func TestBadInputIsRefusedAndNothingOfItIsDelivered(t *testing.T) {
	s := brisk()
	s["http.max_body_bytes"], s["http.header_timeout_ms"], s["http.body_timeout_ms"] = bodyCap, 300, 500
	w := one(t, harness.Options{Settings: s})
	w.send(load.Config{Workers: 4, Count: 200, Makers: []load.Maker{load.Plain("raw", 500), load.Stripe("pay", stripeSecret)}})

	w.refusesHooks(t)
	w.refusesRequests(t)
	w.complete()
	report := w.finish()
	require.Equal(t, 200, report.Delivered)
	require.Equal(t, 200, w.receiver.Attempts(), "and nothing else")
}

// refusesHooks sends requests that are well formed, for nobody or not signed.
func (w *world) refusesHooks(t *testing.T) {
	t.Run("unknown source", func(t *testing.T) {
		for _, path := range []string{"/webhooks/nobody", "/webhooks/" + strings.Repeat("x", 300), "/webhooks/a.b", "/webhooks/ankusa:lifecycle"} {
			status, answer := w.post(path, []byte("x"))
			require.Equal(t, http.StatusNotFound, status, path)
			require.Equal(t, "unknown_source", answer["error"], path)
		}
	})
	t.Run("signatures", func(t *testing.T) {
		good := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: []byte(`{"id":"evt_bad"}`), Secret: "whsec_other"}).Header
		stale := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{
			Payload: []byte(`{"id":"evt_bad"}`), Secret: stripeSecret, Timestamp: time.Now().Add(-time.Hour),
		}).Header
		early := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{
			Payload: []byte(`{"id":"evt_bad"}`), Secret: stripeSecret, Timestamp: time.Now().Add(time.Hour),
		}).Header
		for signature, reason := range map[string]string{
			good: "no_match", stale: "timestamp_out_of_tolerance", early: "timestamp_out_of_tolerance",
			"garbage": "malformed_signature", "": "missing_signature",
		} {
			var header []string
			if signature != "" {
				header = []string{"Stripe-Signature", signature}
			}
			status, answer := w.post("/webhooks/pay", []byte(`{"id":"evt_bad"}`), header...)
			require.Equal(t, http.StatusUnauthorized, status, reason)
			require.Equal(t, map[string]any{"error": "verification_failed", "reason": reason}, answer)
		}
	})
}

// refusesRequests sends what is no request, too large, or too slow.
func (w *world) refusesRequests(t *testing.T) {
	t.Run("L30 body over the cap", func(t *testing.T) {
		status, answer := w.post("/webhooks/raw", make([]byte, bodyCap+1))
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
		require.Equal(t, map[string]any{"error": "payload_too_large", "limit": float64(bodyCap)}, answer)
		chunked := fmt.Sprintf("POST /webhooks/raw HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
			bodyCap+1, strings.Repeat("x", bodyCap+1))
		require.Contains(t, w.raw(chunked), " 413 ")
	})
	t.Run("L34 header bytes that are no text", func(t *testing.T) {
		answer := w.raw("POST /webhooks/raw HTTP/1.1\r\nHost: x\r\nX-Bad: caf\xe9\r\nContent-Length: 1\r\n\r\nx")
		require.Contains(t, answer, " 400 ")
		require.Contains(t, answer, "invalid_header")
	})
	t.Run("requests that cannot be read", func(t *testing.T) {
		for request, says := range map[string]string{
			"nonsense\r\n\r\n": `{"error":"malformed_request"}`,
			"POST /webhooks/raw HTTP/1.1\r\nContent-Length: 1\r\n\r\nx":                               "missing required Host header",
			"POST /webhooks/raw HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n": `"headers_too_large"`,
			"POST /webhooks/raw HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n":               `"unsupported_transfer_encoding"`,
			"POST /webhooks/raw HTTP/9.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx":                    `"unsupported_http_version"`,
		} {
			require.Contains(t, w.raw(request), says, fmt.Sprintf("%.60q", request))
		}
	})
	t.Run("L41 slow senders", func(t *testing.T) {
		began := time.Now()
		w.raw("POST /webhooks/raw HTTP/1.1\r\nHost: x\r\n")
		w.raw("POST /webhooks/raw HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
		require.Less(t, time.Since(began), 10*time.Second, "the connection is closed")
	})
}

// raw writes bytes and returns all that comes back until the product closes, or answers and stays.
func (w *world) raw(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.cluster.Targets[0], "http://"))
	require.NoError(w.t, err)
	defer func() { _ = c.Close() }()
	require.NoError(w.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(c, text) // it may have had enough before the end
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return fmt.Sprintf("HTTP %s \n%s", resp.Status, body)
}

// TestABadFileIsRefusedBeforeAPortIsBound: exit status 78, every fault with its key, and no secret in the message.
func TestABadFileIsRefusedBeforeAPortIsBound(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		says []string
	}{
		"malformed": {"store: [", nil},
		"many faults": {`
store: {type: floppy}
http: {port: 70000}
nonsense: 1
sources: {pay: {verify: {type: stripe, secret: "` + stripeSecret + `"}, sinks: [{type: pigeon}]}}
`, []string{"store.type", "http.port", "nonsense", "sources.pay.sinks"}},
		"not built yet":       {"quarantine: {rate: 1}\n", []string{"quarantine", "not supported yet"}},
		"unresolved variable": {"store: {dir: \"${ANKUSA_E2E_UNSET}\"}\n", []string{"store.dir", "ANKUSA_E2E_UNSET"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ankusa.yml")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			for _, args := range [][]string{{"serve"}, {"check-config"}} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				cmd := exec.CommandContext(ctx, filepath.Join(bin, "ankusa"), args...)
				cmd.Env = append(os.Environ(), "ANKUSA_CONFIG="+path)
				out, err := cmd.CombinedOutput()
				cancel()
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit)
				require.Equal(t, 78, exit.ExitCode(), string(out))
				for _, text := range c.says {
					require.Contains(t, string(out), text)
				}
				require.NotContains(t, string(out), stripeSecret)
			}
		})
	}
}
