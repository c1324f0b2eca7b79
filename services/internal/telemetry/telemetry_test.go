package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"ankusa.dev/services/internal/telemetry"
)

func TestTheLogIsJSONOfTheLevelAndAbove(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger("warning", zapcore.AddSync(&out))
	require.NoError(t, err)
	log.Info("hidden")
	log.Error("shown", zap.String("hook_id", "h"), zap.Error(errors.New("broken")), zap.Duration("took", 1500*time.Millisecond))

	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	_, err = time.Parse(time.RFC3339, line["time"].(string))
	require.NoError(t, err)
	delete(line, "time")
	require.Equal(t, map[string]any{
		"level": "error", "message": "shown", "hook_id": "h", "error": "broken", "took": 1.5,
	}, line)
}

func TestAnUnknownLevelIsRefused(t *testing.T) {
	_, err := telemetry.NewLogger("loud", zapcore.AddSync(&bytes.Buffer{}))
	require.Error(t, err)
}

func get(t *testing.T, h http.Handler, path string) (*http.Response, map[string]any) {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body := map[string]any{}
	if recorder.Header().Get("Content-Type") == "application/json" {
		require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &body))
	} else {
		body["text"] = recorder.Body.String()
	}
	return recorder.Result(), body
}

var process = telemetry.Process{Instance: "eu", Version: "1.2.3", Roles: []string{"scheduler", "ingest"}}

func TestHealthSaysWhoTheProcessIs(t *testing.T) {
	h := telemetry.Handler(process, telemetry.NewMetrics("eu"))
	response, body := get(t, h, "/health")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, map[string]any{
		"status": "ok", "instance": "eu", "version": "1.2.3", "roles": []any{"ingest", "scheduler"},
	}, body)
	for _, path := range []string{"/nothing", "/", "//health", "/x/../health", "/./health"} {
		response, body = get(t, h, path)
		require.Equal(t, http.StatusNotFound, response.StatusCode, path)
		require.Equal(t, map[string]any{"error": "not_found"}, body)
	}
}

func TestReadyNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		word := "store_unavailable"
		store := telemetry.Check{Name: "store", Check: func(context.Context) string { return word }}
		fine := telemetry.Check{Name: "leader", Check: func(context.Context) string { return "" }}
		h := telemetry.Handler(process, telemetry.NewMetrics("eu"), store, fine)

		response, body := get(t, h, "/ready")
		require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
		require.Equal(t, "1", response.Header.Get("Retry-After"))
		require.Equal(t, map[string]any{
			"status": "unavailable", "error": "not_ready", "instance": "eu", "store": "store_unavailable",
		}, body)

		word = ""
		time.Sleep(time.Second)
		response, body = get(t, h, "/ready")
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, map[string]any{"status": "ok", "instance": "eu"}, body)
	})
}

func TestWhatIsMissingCanBeAskedForWithinTheProcess(t *testing.T) {
	word := "write_failed"
	checks := []telemetry.Check{
		{Name: "store", Check: func(context.Context) string { return word }},
		{Name: "other", Check: func(context.Context) string { return "" }},
	}
	synctest.Test(t, func(t *testing.T) {
		h := telemetry.Handler(telemetry.Process{Instance: "eu"}, telemetry.NewMetrics("eu"), checks...)
		require.Equal(t, map[string]string{"store": "write_failed"}, telemetry.Missing(t.Context(), h))
		word = ""
		time.Sleep(time.Second)
		require.Empty(t, telemetry.Missing(t.Context(), h))
	})
	require.Equal(t, map[string]string{"ready": "unavailable"}, telemetry.Missing(t.Context(), http.NotFoundHandler()))
}

func TestL44_ACheckRunsOncePerSecondForHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		check := telemetry.Cached(telemetry.Check{Name: "store", Check: func(context.Context) string {
			calls.Add(1)
			time.Sleep(10 * time.Millisecond)
			return ""
		}})
		ask := func() {
			for range 50 {
				go check.Check(t.Context())
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		ask()
		require.EqualValues(t, 1, calls.Load())
		time.Sleep(time.Second)
		ask()
		require.EqualValues(t, 2, calls.Load())
	})
}

func TestACheckThatHangsIsCutOffAndOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := telemetry.Cached(telemetry.Check{Name: "store", Check: func(ctx context.Context) string {
			<-ctx.Done()
			return "store_unavailable"
		}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		require.Equal(t, "store_unavailable", check.Check(ctx))
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

type failing struct{}

func (failing) Describe(c chan<- *prometheus.Desc) {
	c <- prometheus.NewDesc("ankusa_failing", "Fails.", nil, nil)
}

func (failing) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(prometheus.NewDesc("ankusa_failing", "Fails.", nil, nil), errors.New("broken"))
}

func TestMetricsCarryTheInstanceAndSurviveAFailedCollector(t *testing.T) {
	m := telemetry.NewMetrics("eu")
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "ankusa_things_total", Help: "Things."})
	m.MustRegister(counter, failing{})
	counter.Inc()
	response, body := get(t, telemetry.Handler(process, m), "/metrics")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, response.Header.Get("Content-Type"), "text/plain; version=0.0.4")
	require.Contains(t, body["text"], `ankusa_things_total{instance="eu"} 1`)
	require.Contains(t, body["text"], "go_goroutines ")
}
