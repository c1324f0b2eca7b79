package httpsink

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// sent is the header as it goes out: names stay as they are.
func sent(s *Sink, d *sink.Delivery, g signature) map[string][]string {
	return s.header(d, d.Hook.ID.String(), g)
}

func TestADeliveryCarriesWhatIsKnownAboutTheHook(t *testing.T) {
	s := newSink(t, nil)
	d := deliveryTo("http://127.0.0.1/")
	got := sent(s, d, signature{})
	require.Contains(t, got, "Idempotency-Key")
	require.Empty(t, got["Idempotency-Key"], "marks the request as repeatable and is not sent")
	delete(got, "Idempotency-Key")
	want := map[string][]string{
		"x-ankusa-id":              {"01900000-0000-0000-0000-000000000007"},
		"x-ankusa-source":          {"acme.stripe"},
		"x-ankusa-tenant":          {"acme"},
		"x-ankusa-idempotency-key": {"01900000-0000-0000-0000-000000000007"},
		"x-ankusa-received-at":     {"1700000000123"},
		"x-ankusa-verification":    {"ok"},
		"x-ankusa-body-sha256":     {"f9d86028c6e0d64e225186f96acb69338b2c59764df79162107f5c4bb34d1310"}, // by sha256sum
		"Content-Type":             {"application/json"},
		"User-Agent":               {"Ankusa/1.2.3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}

	d.Hook.DedupeKey, d.Hook.Verification, d.Hook.Flagged, d.Hook.Headers = "evt_1", hook.Failed, true, nil
	d.ReplayID, d.OrderingKey = "01890000-0000-7000-8000-000000000000", "customer-1"
	got = sent(s, d, signature{"ts", "v1,x"})
	for name, value := range map[string]string{
		"x-ankusa-dedupe-key": "evt_1", "x-ankusa-idempotency-key": "acme:acme.stripe:evt_1",
		"x-ankusa-verification": "failed", "x-ankusa-verification-flagged": "true",
		"x-ankusa-replay-id": d.ReplayID, "x-ankusa-ordering-key": "customer-1",
		"webhook-id": d.Hook.ID.String(), "webhook-timestamp": "ts", "webhook-signature": "v1,x",
	} {
		require.Equal(t, []string{value}, got[name], name)
	}
	d.OrderingKey = "é\x00"
	require.Equal(t, []string{"%C3%A9%00"}, sent(s, d, signature{})["x-ankusa-ordering-key"], "a lane's key is any bytes")
	require.NotContains(t, got, "Content-Type", "a hook without a content type is delivered without one")
}

func TestHeadersAreForwardedByTheSourcesPolicy(t *testing.T) {
	s := newSink(t, nil)
	d := deliveryTo("http://127.0.0.1/")
	d.Sink.HTTP.Headers = map[string]source.Secret{
		"x-github-event": source.NewSecret("mine"), "x-token": source.NewSecret("t"),
	}
	d.Hook.Headers = []hook.Header{
		{Name: "X-GitHub-Event", Value: "push"}, {Name: "X-Many", Value: "1"}, {Name: "x-many", Value: "2"},
		{Name: "Authorization", Value: "Bearer x"}, {Name: "Cookie", Value: "x"}, {Name: "X-Api-Key", Value: "x"},
		{Name: "Host", Value: "evil"}, {Name: "Content-Length", Value: "5"}, {Name: "Transfer-Encoding", Value: "chunked"},
		{Name: "X-Ankusa-Tenant", Value: "other"}, {Name: "x-ankusa-anything", Value: "forged"},
		{Name: "User-Agent", Value: "GitHub"}, {Name: "webhook-id", Value: "theirs"},
		{Name: "webhook-signature", Value: "v1,theirs"}, {Name: "traceparent", Value: "junk"},
		{Name: "tracestate", Value: "a=b"},
	}
	got := sent(s, d, signature{"1", "v1,ours"})
	require.Equal(t, []string{"mine"}, got["x-github-event"], "the sink's own header replaces the provider's")
	require.Equal(t, []string{"t"}, got["x-token"])
	require.Equal(t, []string{"1", "2"}, got["x-many"])
	require.Equal(t, []string{"acme"}, got["x-ankusa-tenant"])
	require.Equal(t, []string{"Ankusa/1.2.3"}, got["User-Agent"])
	require.Equal(t, []string{d.Hook.ID.String()}, got["webhook-id"])
	require.Equal(t, []string{"v1,ours"}, got["webhook-signature"])
	for _, name := range []string{
		"authorization", "cookie", "x-api-key", "host", "content-length", "transfer-encoding", "x-ankusa-anything",
		"user-agent", "traceparent", "tracestate",
	} {
		require.NotContains(t, got, name)
	}
	got = sent(s, d, signature{})
	require.Equal(t, []string{"theirs"}, got["webhook-id"], "an unsigned sink forwards the provider's")

	d.Source.ForwardHeaders = []string{"x-many"}
	require.NotContains(t, sent(s, d, signature{}), "webhook-id")
}

func TestForwardedHeadersPastACapAreDroppedAndCounted(t *testing.T) {
	s := newSink(t, nil)
	d := deliveryTo("http://127.0.0.1/")
	d.Source.MaxHeaders, d.Source.ForwardHeadersMaxBytes = 2, 20
	d.Hook.Headers = []hook.Header{
		{Name: "x-a", Value: "1"}, {Name: "x-long", Value: strings.Repeat("v", 20)}, {Name: "x-b", Value: "2"},
		{Name: "x-c", Value: "3"},
	}
	got := sent(s, d, signature{})
	require.Contains(t, got, "x-a")
	require.Contains(t, got, "x-b")
	require.NotContains(t, got, "x-long")
	require.NotContains(t, got, "x-c")
	require.EqualValues(t, 1, count(s.metrics.byCount))
	require.EqualValues(t, 1, count(s.metrics.byBytes))
}

func TestTheProvidersTraceGoesOn(t *testing.T) {
	s := newSink(t, nil)
	d := deliveryTo("http://127.0.0.1/")
	d.Source.ForwardHeaders = []string{}
	d.Hook.Headers = []hook.Header{{Name: "Traceparent", Value: parent}, {Name: "TraceState", Value: "vendor=1"}}
	got := sent(s, d, signature{})
	require.Equal(t, []string{parent}, got["traceparent"])
	require.Equal(t, []string{"vendor=1"}, got["tracestate"])

	d.Hook.Headers[1].Value = strings.Repeat("a", 513)
	require.NotContains(t, sent(s, d, signature{}), "tracestate")

	for _, bad := range []string{
		"", "00", strings.ToUpper(parent), "01" + parent[2:], parent + "-x", strings.Replace(parent, "-b", "_b", 1),
		"00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
	} {
		require.False(t, validParent(bad), bad)
	}
}

func TestL34_KeysThatAHeaderCannotCarryAreEncoded(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "evt_1": "evt_1", "a:b": "a:b", "a b": "a%20b", "100%": "100%25", "%20": "%2520",
		"é": "%C3%A9", "a\r\nx: y": "a%0D%0Ax:%20y", "𝒳": "%F0%9D%92%B3", "\xff": "%FF",
	} {
		require.Equal(t, want, fieldText(key), "%q", key)
	}
}
