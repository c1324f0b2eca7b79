package httpsink

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/services/internal/egress"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func loopback() *egress.Policy {
	return egress.New(egress.Config{AllowHTTP: true, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

func newSink(t testing.TB, change func(*Config)) *Sink {
	t.Helper()
	c := Default()
	c.Version, c.Policy = "1.2.3", loopback()
	if change != nil {
		change(&c)
	}
	s, err := New(c, prometheus.NewRegistry())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// deliveryTo is a plain delivery, signed with one secret.
func deliveryTo(url string) *sink.Delivery {
	src := source.New("acme", "stripe")
	src.Sinks = []source.Sink{{Type: source.SinkHTTP, HTTP: source.HTTP{
		URL: url, Method: "post", Timeout: 5 * time.Second, MaxResponse: source.DefaultMaxResponse,
		Secrets: []source.Secret{source.NewSecret(testSecret)},
	}}}
	return &sink.Delivery{
		Source: src, Sink: &src.Sinks[0], Attempt: 1,
		Hook: &hook.Hook{
			ID: hook.ID{1, 0x90, 15: 7}, Tenant: "acme", SourceID: "acme.stripe", ReceivedAt: 1_700_000_000_123,
			Verification: hook.Verified, Body: []byte(`{"a": 1}`),
			Headers: []hook.Header{{Name: "Content-Type", Value: "application/json"}},
		},
	}
}

// receiver counts its connections.
type receiver struct {
	*httptest.Server
	connections atomic.Int64
}

func newReceiver(t testing.TB, handle http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{Server: httptest.NewUnstartedServer(handle)}
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.connections.Add(1)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func count(c prometheus.Counter) float64 { return testutil.ToFloat64(c) }

// quiet is for servers whose complaints are expected.
var quiet = log.New(io.Discard, "", 0)
