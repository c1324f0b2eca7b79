package sinkrunner

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"ankusa.dev/services/internal/egress"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/httpsink"
	"ankusa.dev/services/internal/sinkrunner/logsink"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/wire"
)

// garbler answers with an error, or with what is no HTTP.
func garbler(t *testing.T) string {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "SECRET-garbage") {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("SECRET-ANSWER\r\n\r\n"))
				_ = conn.Close()
			}
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(receiver.Close)
	return receiver.URL
}

// secretive is a source whose sinks have a secret wherever there may be one.
func secretive(receiver string) *source.Source {
	src := newSource("http", "http", "http", "log")
	for i, url := range []string{
		receiver + "/SECRET-path?token=SECRET-query", receiver + "/SECRET-garbage",
		"http://user:SECRET-password@example.com",
	} {
		src.Sinks[i].HTTP = source.HTTP{
			URL: url, Method: "post", Timeout: 5 * time.Second, MaxResponse: 1000,
			Secrets: []source.Secret{source.NewSecret("SECRET-key")},
			Headers: map[string]source.Secret{"x-token": source.NewSecret("SECRET-header")},
		}
	}
	return src
}

// realSinks are those of production, free to dial the loopback.
func realSinks(t *testing.T, log *zap.Logger) sink.Set {
	config := httpsink.Default()
	config.Policy = egress.New(egress.Config{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	sinkHTTP, err := httpsink.New(config, prometheus.NewRegistry())
	require.NoError(t, err)
	return sink.Set{source.SinkHTTP: sinkHTTP, source.SinkLog: logsink.New(log)}
}

func TestL48_NeitherLogsNorOutcomesHoldASecretOrAPayload(t *testing.T) {
	src := secretive(garbler(t))
	var logs strings.Builder
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewDevelopmentEncoderConfig()),
		zapcore.Lock(zapcore.AddSync(&logs)), zap.DebugLevel))
	h := &harness{t: t, leader: &fakeLeader{streams: make(chan *fakeStream, 1)}, store: &fakeStore{}}
	h.sources = &fakeSources{read: func(string, string, hook.Timestamp) (*source.Source, error) { return src, nil }}
	server, conn := h.connect()
	defer server.Stop()
	runner, err := New(Default(), Deps{
		Leader: conn, Store: h.store, Sources: h.sources, Log: log, Metrics: prometheus.NewRegistry(),
		Sinks: realSinks(t, log),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Run(ctx) }()

	f := h.stream()
	f.welcome(1)
	var all []wire.Attempt
	for i := range src.Sinks {
		a := attempt(uint64(i + 1))
		a.Row.Key.Index, a.Row.Key.Type = uint16(i), src.Sinks[i].Type
		all = append(all, a)
	}
	f.lease(all...)
	reasons := map[uint64]string{}
	for _, r := range f.reports(len(all)) {
		reasons[r.Lease.ID] = r.Outcome.Reason
		f.settle(r.Lease)
	}
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, conn.Close())
	require.Equal(t, map[uint64]string{
		1: "http: status 500", 2: "http: exchange failed", 3: "egress_denied url", 4: "",
	}, reasons)
	require.Equal(t, len(all), strings.Count(logs.String(), "attempt ended"))
	require.NotContains(t, logs.String()+fmt.Sprint(reasons), "SECRET")
}
