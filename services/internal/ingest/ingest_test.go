package ingest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82/webhook"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/kv/meterkv"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is the role on a store in memory that can be taken away, with a leader that acknowledges.
type stand struct {
	*ingest.Ingest
	addr   string
	kv     *faultkv.Store
	calls  atomic.Int64 // through the store port
	store  *store.Store
	leader *leader
	log    *bytes.Buffer
	stop   func() error
}

func quick() ingest.Config {
	c := ingest.Default()
	c.Accept.MaxBodyBytes, c.Accept.CommitsInFlight = 100_000, 4
	return c
}

func start(t testing.TB, c ingest.Config, sources ...*source.Source) *stand {
	t.Helper()
	mem, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	s := &stand{leader: &leader{named: map[hook.ID]int{}, rows: map[hook.ID]hook.Row{}}, log: &bytes.Buffer{}}
	metered := meterkv.New(mem, func([]byte) string { return "any" }, func(string) { s.calls.Add(1) })
	s.kv = faultkv.New(metered, nil)
	s.store, err = store.Open(t.Context(), s.kv, store.Options{})
	require.NoError(t, err)
	for _, src := range sources {
		require.NoError(t, src.Validate("", source.Rules{}))
		_, err = s.store.CreateSource(t.Context(), src)
		require.NoError(t, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = l.Addr().String()
	logger, err := telemetry.NewLogger("debug", &locked{w: s.log})
	require.NoError(t, err)
	s.Ingest, err = ingest.New(c, ingest.Deps{
		Store: s.store, Scheduler: dial(t, s.leader), Listener: l, Process: telemetry.Process{Instance: "test"},
		Metrics: telemetry.NewMetrics("test"), Log: logger,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		require.NoError(t, s.stop())
		require.NoError(t, mem.Close())
	})
	return s
}

// locked makes a buffer safe for a logger.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (l *locked) Sync() error { return nil }

func open(name string) *source.Source {
	s := source.New("default", name)
	s.Verify.Type, s.Sinks = source.VerifyNone, []source.Sink{{Type: source.SinkLog}}
	return s
}

func stripeSource(name string) *source.Source {
	s := open(name)
	s.Verify = source.Verify{Type: source.VerifyStripe, Secrets: []source.Secret{source.NewSecret("hunter2")}}
	s.Verify.SetDefaults()
	s.Dedupe = &source.Dedupe{Preset: "stripe", TTL: time.Hour}
	return s
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) json(t testing.TB) (m map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.body), &m), r.body)
	return m
}

func (s *stand) do(t testing.TB, method, path string, body io.Reader, headers ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	r.Close = true
	response, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(text)}
}

func (s *stand) post(t testing.TB, name, body string, headers ...string) reply {
	t.Helper()
	return s.do(t, "POST", "/webhooks/"+name, strings.NewReader(body), headers...)
}

// raw sends text as it is and returns the answer.
func (s *stand) raw(t testing.TB, text string) reply {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, response.Header, string(body)}
}

// hooks counts what is in the store, by what it told the leader.
func (s *stand) accepted() int {
	s.leader.mu.Lock()
	defer s.leader.mu.Unlock()
	return len(s.leader.named)
}

func TestASignedHookIsAcceptedStoredAndAnnounced(t *testing.T) {
	s := start(t, quick(), stripeSource("stripe"))
	body := `{"id":"evt_1","text":"😀"}`
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: "hunter2"})
	r := s.post(t, "stripe", body, "Stripe-Signature", signed.Header, "X-Extra", "a", "X-Extra", "b")
	require.Equal(t, 201, r.status)
	m := r.json(t)
	require.Equal(t, map[string]any{"status": "accepted", "id": m["id"]}, m)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))

	id, err := hook.ParseID(m["id"].(string))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.leader.times(id) == 1 }, 5*time.Second, time.Millisecond)

	again := s.post(t, "stripe", body, "Stripe-Signature", signed.Header)
	require.Equal(t, 201, again.status)
	require.Equal(t, map[string]any{"status": "accepted", "id": m["id"], "duplicate": true}, again.json(t))

	wrong := s.post(t, "stripe", body+" ", "Stripe-Signature", signed.Header)
	require.Equal(t, 401, wrong.status)
	require.JSONEq(t, `{"error":"verification_failed","reason":"no_match"}`, wrong.body)
	stale := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
		Payload: []byte(body), Secret: "hunter2", Timestamp: time.Now().Add(-time.Hour)})
	require.JSONEq(t, `{"error":"verification_failed","reason":"timestamp_out_of_tolerance"}`,
		s.post(t, "stripe", body, "Stripe-Signature", stale.Header).body)
	require.NoError(t, s.stop())
	require.Equal(t, 1, s.accepted())
	require.NotContains(t, s.log.String(), "hunter2", "L48")
	require.NotContains(t, s.log.String(), "evt_1", "L48")
}

func TestAnswersAreThoseOfTheTable(t *testing.T) {
	s := start(t, quick(), open("a"))
	big := strings.Repeat("x", 100_001)
	for name, c := range map[string]struct {
		got    reply
		status int
		body   string
	}{
		"unknown source":     {s.post(t, "b", ""), 404, `{"error":"unknown_source"}`},
		"foreign tenant":     {s.post(t, "acme.a", ""), 404, `{"error":"unknown_source"}`},
		"bad name":           {s.post(t, "a$b", ""), 404, `{"error":"unknown_source"}`},
		"deeper path":        {s.post(t, "a/b", ""), 404, `{"error":"unknown_source"}`},
		"escaped slash":      {s.post(t, "a%2Fb", ""), 404, `{"error":"unknown_source"}`},
		"no name":            {s.post(t, "", ""), 404, `{"error":"unknown_source"}`},
		"no route":           {s.do(t, "POST", "/other", nil), 404, `{"error":"not_found"}`},
		"wrong method":       {s.do(t, "GET", "/webhooks/a", nil), 404, `{"error":"not_found"}`},
		"over the cap":       {s.post(t, "a", big), 413, `{"error":"payload_too_large","limit":100000}`},
		"L30 chunked":        {s.do(t, "POST", "/webhooks/a", io.MultiReader(strings.NewReader(big))), 413, `{"error":"payload_too_large","limit":100000}`},
		"L34 value":          {s.post(t, "a", "", "X-Name", "J\xfcrgen"), 400, `{"error":"invalid_header","header":"x-name"}`},
		"L34 UTF-8 value":    {s.post(t, "a", "", "X-Name", "Jürgen"), 400, `{"error":"invalid_header","header":"x-name"}`},
		"unknown before cap": {s.post(t, "b", "", "X-Name", "J\xfcrgen"), 404, `{"error":"unknown_source"}`},
	} {
		require.Equal(t, c.status, c.got.status, name)
		require.JSONEq(t, c.body, c.got.body, name)
	}
	require.Zero(t, s.accepted(), "and nothing is stored")
	require.Equal(t, 201, s.post(t, "a", big[1:]).status, "exactly the cap")
	require.Equal(t, 201, s.do(t, "POST", "/webhooks/a", io.MultiReader(strings.NewReader(big[1:]))).status)
}

func TestL34_HeadersThatTheServerItselfRefusesAreAClear400(t *testing.T) {
	s := start(t, quick(), open("a"))
	for name, line := range map[string]string{
		"NUL in value": "X-A: a\x00b", "control in value": "X-A: a\x01b", "DEL in value": "X-A: a\x7fb",
		"bare CR": "X-A: a\rb", "not ASCII in name": "X-\xc3\xa4: b", "space in name": "X A: b", "no colon": "XA",
		"empty name": ": b",
	} {
		r := s.raw(t, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\n"+line+"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
		require.Equal(t, 400, r.status, name)
		require.NotEmpty(t, r.body, name)
	}
	tab := s.raw(t, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nX-A: a\tb c\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
	require.Equal(t, 201, tab.status, "tab and space are text")
	require.NoError(t, s.stop())
	require.Equal(t, 1, s.accepted())
}

func TestARefusalBeforeTheBodyDoesNotWaitForIt(t *testing.T) {
	s := start(t, quick(), open("a"))
	r := s.raw(t, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n")
	require.Equal(t, 413, r.status)
	r = s.raw(t, "POST /webhooks/nobody HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	require.Equal(t, 404, r.status)
}

func TestL41_SlowSendersAreCutOffAndStoreNothing(t *testing.T) {
	c := quick()
	c.HTTP.HeaderTimeout, c.HTTP.BodyTimeout = 100*time.Millisecond, 100*time.Millisecond
	s := start(t, c, open("a"))
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nX-Slow: ")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = io.ReadAll(conn) // until the server closes, or resets
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)

	r := s.raw(t, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nx")
	require.Equal(t, 400, r.status)
	require.JSONEq(t, `{"error":"body_read_failed","reason":"too slow"}`, r.body)
	require.NoError(t, s.stop())
	require.Zero(t, s.accepted())
}

func TestABodyThatEndsEarlyIsRefused(t *testing.T) {
	s := start(t, quick(), open("a"))
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nConnection: close\r\n\r\nx")
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 400, response.StatusCode)
	_ = response.Body.Close()
	require.Zero(t, s.accepted())
}

func TestL01_AStoreThatIsAwayIs503AndWorkGoesOnAfterIt(t *testing.T) {
	s := start(t, quick(), open("a"))
	require.Equal(t, 201, s.post(t, "a", "x").status)
	require.Equal(t, 200, s.do(t, "GET", "/ready", nil).status)
	s.kv.SetDown(true)
	r := s.post(t, "a", "x")
	require.Equal(t, 503, r.status)
	require.JSONEq(t, `{"error":"store_unavailable"}`, r.body)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	s.kv.SetDown(false)
	require.Equal(t, 201, s.post(t, "a", "x").status)
}

func TestReadinessSaysThatAWriteFailed(t *testing.T) {
	s := start(t, quick(), open("a"))
	require.Equal(t, 201, s.post(t, "a", "x").status)
	s.kv.SetDown(true)
	require.Equal(t, 503, s.post(t, "a", "x").status)
	s.kv.SetDown(false)
	r := s.do(t, "GET", "/ready", nil)
	require.Equal(t, 503, r.status)
	require.Equal(t, "write_failed", r.json(t)["store"])
	require.Equal(t, "1", r.header.Get("Retry-After"))
}

func TestReadinessSaysThatTheStoreIsAway(t *testing.T) {
	s := start(t, quick())
	s.kv.SetDown(true)
	r := s.do(t, "GET", "/ready", nil)
	require.Equal(t, 503, r.status)
	require.Equal(t, "store_unavailable", r.json(t)["store"])
	h := s.do(t, "GET", "/health", nil)
	require.Equal(t, 200, h.status)
	require.Equal(t, "test", h.json(t)["instance"])
}

func TestMetricsAreServed(t *testing.T) {
	s := start(t, quick(), open("a"))
	require.Equal(t, 201, s.post(t, "a", "x").status)
	text := s.do(t, "GET", "/metrics", nil).body
	require.Contains(t, text, `ankusa_ingest_requests_total{instance="test",outcome="committed",source_id="a"} 1`)
	require.Contains(t, text, `ankusa_ingest_refused_total{instance="test",reason="unknown_source"} 0`)
	require.Contains(t, text, `ankusa_wal_commit_batch_size{instance="test"} 1`)
}

func TestRoutingByTenant(t *testing.T) {
	c := quick()
	c.HTTP.TenantFromURL, c.Accept.TenantFromURL, c.HTTP.Prefix = true, true, ""
	own := open("own")
	own.Tenant = "acme"
	shared := open("shared")
	shared.TrustURLTenant = true
	s := start(t, c, own, shared)
	for path, want := range map[string]int{
		"/acme/own": 201, "/acme/shared": 201, "/umbrella/shared": 201, "/default/shared": 201,
		"/umbrella/own": 404, "/default/own": 404, "/shared": 404, "/acme/shared/x": 404, "/a%20b/shared": 404,
	} {
		require.Equal(t, want, s.do(t, "POST", path, strings.NewReader("x")).status, path)
	}
}

func TestL09_AHundredEqualRequestsAtOnceMakeOneHook(t *testing.T) {
	s := start(t, quick(), stripeSource("stripe"))
	body := `{"id":"evt_same"}`
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: "hunter2"})
	var mu sync.Mutex
	ids, first := map[any]bool{}, 0
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			r := s.post(t, "stripe", body, "Stripe-Signature", signed.Header)
			m := r.json(t)
			mu.Lock()
			defer mu.Unlock()
			ids[m["id"]] = true
			if m["duplicate"] == nil && r.status == 201 {
				first++
			}
		})
	}
	wg.Wait()
	require.Len(t, ids, 1)
	require.Equal(t, 1, first)
	require.NoError(t, s.stop())
	require.Equal(t, 1, s.accepted())
}

func TestL27_I12_TheBytesInTheStoreAreTheBytesReceived(t *testing.T) {
	s := start(t, quick(), open("a"))
	for _, body := range []string{"", "\x00\xff\xfe", "{ \"b\":1.0,\r\n\"a\" : 1e2}", "😀𝒳", strings.Repeat("z", 70_000)} {
		r := s.post(t, "a", body, "Content-Encoding", "gzip", "X-Two", "1", "X-Two", "2")
		require.Equal(t, 201, r.status)
		id, err := hook.ParseID(r.json(t)["id"].(string))
		require.NoError(t, err)
		h := s.leader.hook(t, s.store, id)
		require.Equal(t, body, string(h.Body))
		var two []string
		for _, f := range h.Headers {
			if f.Name == "X-Two" {
				two = append(two, f.Value)
			}
		}
		require.Empty(t, cmp.Diff([]string{"1", "2"}, two))
	}
}

func TestShutdownAnswersWhatItHasBegun(t *testing.T) {
	s := start(t, quick(), open("a"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := 0
	for i := range 50 {
		wg.Go(func() {
			for {
				r, err := http.Post("http://"+s.addr+"/webhooks/a", "text/plain", strings.NewReader(fmt.Sprint(i)))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
				if r.StatusCode == http.StatusCreated {
					mu.Lock()
					acknowledged++
					mu.Unlock()
				}
			}
		})
	}
	require.Eventually(t, func() bool { return s.accepted() > 200 }, 10*time.Second, time.Millisecond)
	require.NoError(t, s.stop())
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	require.GreaterOrEqual(t, s.accepted(), acknowledged, "all that was acknowledged is announced before the end")
}

func TestAListenerThatFailsEndsTheRole(t *testing.T) {
	mem, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	st, err := store.Open(t.Context(), mem, store.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	i, err := ingest.New(quick(), ingest.Deps{
		Store: st, Scheduler: acknowledging(t), Listener: l, Metrics: telemetry.NewMetrics("test"), Log: zap.NewNop(),
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- i.Run(t.Context()) }()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

func TestL44_AnIdleRoleMakesNoCallToTheStore(t *testing.T) {
	s := start(t, quick(), open("a"))
	require.Equal(t, 201, s.post(t, "a", "x").status)
	require.Eventually(t, func() bool { return s.accepted() == 1 }, 5*time.Second, time.Millisecond)
	before := s.calls.Load()
	<-time.After(3 * time.Second) // real sockets: no bubble
	require.Equal(t, before, s.calls.Load())
}

func TestABadConfigurationNamesEveryFault(t *testing.T) {
	c := ingest.Default()
	require.NoError(t, c.Validate())
	c.Accept.MaxBodyBytes, c.HTTP.Prefix, c.Accept.MaxQueue, c.DrainTimeout = 0, "x", 1, 0
	err := c.Validate()
	for _, want := range []string{"http.max_body_bytes must be 1 to 67108864, got 0", "http.prefix", "batcher.max_queue", "node.shutdown_timeout_ms"} {
		require.ErrorContains(t, err, want)
	}
}
