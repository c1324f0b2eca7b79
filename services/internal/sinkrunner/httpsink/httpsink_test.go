package httpsink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/egress"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

func TestL27_L28_BytesAreDeliveredAsReceivedAndVerify(t *testing.T) {
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	require.NoError(t, err)
	bodies := make(chan []byte, 1)
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verifier.Verify(body, r.Header)
		}
		if err != nil {
			body = []byte(err.Error())
		}
		bodies <- body
	})
	s := newSink(t, nil)
	for _, body := range []string{
		`{"a": 1}`, "", "\x00\xff\xfe", `{"b":"𝒳 é 🪝", "a" : 1.0 }` + "\r\n", strings.Repeat("x", 1<<20),
	} {
		d := deliveryTo(r.URL)
		d.Hook.Body = []byte(body)
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
		require.Equal(t, body, string(<-bodies))
	}
}

func TestL33_TwoSecretsMakeTwoSignatures(t *testing.T) {
	headers := make(chan http.Header, 1)
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header })
	raw := "not base64 at all"
	d := deliveryTo(r.URL)
	d.Sink.HTTP.Secrets = append(d.Sink.HTTP.Secrets, source.NewSecret(raw))
	require.Equal(t, hook.Delivered, newSink(t, nil).Deliver(t.Context(), d).Class)

	got := <-headers
	require.Len(t, strings.Fields(got.Get("webhook-signature")), 2)
	newest, err := standardwebhooks.NewWebhook(testSecret)
	require.NoError(t, err)
	require.NoError(t, newest.Verify(d.Hook.Body, got))
	oldest, err := standardwebhooks.NewWebhookRaw([]byte(raw))
	require.NoError(t, err)
	require.NoError(t, oldest.Verify(d.Hook.Body, got))
	stranger, err := standardwebhooks.NewWebhookRaw([]byte("other"))
	require.NoError(t, err)
	require.Error(t, stranger.Verify(d.Hook.Body, got))
}

func TestL31_NamesGoOutInTheirDocumentedCase(t *testing.T) {
	head := make(chan string, 1)
	url := rawReceiver(t, func(c net.Conn, request string) {
		head <- request
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	d := deliveryTo(url)
	d.Hook.Headers = append(d.Hook.Headers, hook.Header{Name: "X-GitHub-Event", Value: "push"})
	require.Equal(t, hook.Delivered, newSink(t, nil).Deliver(t.Context(), d).Class)
	got := <-head
	for _, line := range []string{
		"POST / HTTP/1.1\r\n", "\r\nx-ankusa-id: ", "\r\nwebhook-signature: v1,", "\r\nx-github-event: push\r\n",
		"\r\nContent-Type: application/json\r\n", "\r\nUser-Agent: Ankusa/1.2.3\r\n", "\r\nContent-Length: 8\r\n",
	} {
		require.Contains(t, got, line)
	}
	require.NotContains(t, strings.ToLower(got), "\r\nidempotency-key:")
	require.NotContains(t, strings.ToLower(got), "accept-encoding")
}

func TestMethodAndQueryAreTheSinks(t *testing.T) {
	lines := make(chan string, 1)
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) { lines <- r.Method + " " + r.RequestURI })
	s := newSink(t, nil)
	for method, want := range map[string]string{"post": "POST", "put": "PUT", "patch": "PATCH"} {
		d := deliveryTo(r.URL + "/a%2Fb?c=d&e")
		d.Sink.HTTP.Method = method
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
		require.Equal(t, want+" /a%2Fb?c=d&e", <-lines)
	}
}

func TestASinkThatCannotSignIsPermanent(t *testing.T) {
	s := newSink(t, nil)
	d := deliveryTo("http://127.0.0.1:1")
	d.Sink.HTTP.Secrets = nil
	require.Equal(t, permanent("unsigned_sink"), s.Deliver(t.Context(), d))
	d.Sink.HTTP.Secrets = []source.Secret{source.NewSecret("whsec_???")}
	require.Equal(t, permanent("bad_secret"), s.Deliver(t.Context(), d))
	d.Sink.HTTP.Secrets = []source.Secret{source.NewSecret("")}
	require.Equal(t, permanent("bad_secret"), s.Deliver(t.Context(), d))
}

func TestAnUnsignedSinkThatIsAllowedSendsNoSignature(t *testing.T) {
	headers := make(chan http.Header, 1)
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header })
	d := deliveryTo(r.URL)
	d.Sink.HTTP.Secrets, d.Sink.HTTP.AllowUnsigned = nil, true
	require.Equal(t, hook.Delivered, newSink(t, nil).Deliver(t.Context(), d).Class)
	require.NotContains(t, <-headers, "Webhook-Signature")
}

func TestL38_ARedirectIsNotFollowedAndFails(t *testing.T) {
	reached := make(chan struct{}, 10)
	other := newReceiver(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{} })
	s := newSink(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308, 304} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(status)
		})
		o := s.Deliver(t.Context(), deliveryTo(r.URL))
		require.Equal(t, hook.Transient, o.Class)
		require.EqualValues(t, status, o.Status)
	}
	require.Empty(t, reached)
}

func TestL39_L40_EgressIsDeniedBeforeAByteIsSent(t *testing.T) {
	r := newReceiver(t, func(http.ResponseWriter, *http.Request) {})
	strict := newSink(t, func(c *Config) { c.Policy = egress.New(egress.Config{AllowHTTP: true}) })
	require.Equal(t, permanent("egress_denied address"), strict.Deliver(t.Context(), deliveryTo(r.URL)))
	require.Equal(t, permanent("egress_denied url"), strict.Deliver(t.Context(), deliveryTo("http://127.1/")))
	tls := newSink(t, func(c *Config) { c.Policy = egress.New(egress.Config{}) })
	require.Equal(t, permanent("egress_denied scheme"), tls.Deliver(t.Context(), deliveryTo(r.URL)))

	// A name that the URL's check cannot judge: the address is, when it is dialled.
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:"+port, nil)
	require.NoError(t, err)
	transport, err := strict.pools.transport(poolKey{host: "localhost:" + port})
	require.NoError(t, err)
	_, err = transport.RoundTrip(request)
	require.Equal(t, permanent("egress_denied address"), strict.failure(t.Context(), err, time.Second))
	require.Zero(t, r.connections.Load())
	require.Equal(t, hook.Delivered, newSink(t, nil).Deliver(t.Context(), deliveryTo(r.URL)).Class)
}

func TestL14_AHangingReceiverCostsItsTimeoutAlone(t *testing.T) {
	release := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
	})
	defer close(release)
	s := newSink(t, nil)
	d := deliveryTo(r.URL)
	d.Sink.HTTP.Timeout = 50 * time.Millisecond
	require.Equal(t, transient("http: timeout 50ms"), s.Deliver(t.Context(), d))

	d.Sink.HTTP.Timeout = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, transient("http: cancelled"), s.Deliver(ctx, d))
}

// Nobody but the receiver can end the connection of a switch, once net/http has handed it over.
func TestL14_ASwitchOfProtocolsDoesNotHoldADelivery(t *testing.T) {
	closed := make(chan error, 1)
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, stream, err := http.NewResponseController(w).Hijack()
		if err != nil {
			closed <- err
			return
		}
		_, _ = stream.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = stream.Flush()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // so that a failure does not hang
		_, err = stream.ReadByte()
		closed <- err
		_ = conn.Close()
	})
	d := deliveryTo(r.URL)
	d.Sink.HTTP.Timeout = time.Minute
	o := newSink(t, nil).Deliver(t.Context(), d)
	require.Equal(t, hook.Outcome{Class: hook.Transient, Status: 101, Reason: "http: status 101"}, o)
	require.ErrorIs(t, <-closed, io.EOF, "the connection is closed at once")
}

func TestL48_FailuresAreToldWithoutWhatTheReceiverSent(t *testing.T) {
	s := newSink(t, nil)
	for name, c := range map[string]struct{ answer, reason string }{
		"garbage":   {"SECRET-PAYLOAD not http\r\n\r\n", "http: exchange failed"},
		"no answer": {"", "http: connection closed"},
		"cut short": {"HTTP/1.1 200", "http: connection closed"},
		"header":    {"HTTP/1.1 200 OK\r\nSECRET-PAYLOAD\r\n\r\n", "http: exchange failed"},
		"flood":     {"HTTP/1.1 200 OK\r\nx: " + strings.Repeat("SECRET-PAYLOAD", 10_000) + "\r\n\r\n", "http: exchange failed"},
	} {
		url := rawReceiver(t, func(c2 net.Conn, _ string) { _, _ = io.WriteString(c2, c.answer) })
		require.Equal(t, transient(c.reason), s.Deliver(t.Context(), deliveryTo(url)), name)
	}
	url := rawReceiver(t, func(c net.Conn, _ string) { _ = c.(*net.TCPConn).SetLinger(0) })
	require.Equal(t, transient("http: connection reset"), s.Deliver(t.Context(), deliveryTo(url)))

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	o := s.Deliver(t.Context(), deliveryTo("http://"+closed.Addr().String()+"/?token=SECRET"))
	require.Equal(t, transient("http: connection refused"), o)
	require.Equal(t, "name not resolved", phrase(&net.DNSError{Name: "SECRET"}))
	require.Equal(t, "timeout", phrase(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}))
}

func TestTheFirstBytesOfAnAnswerAreKept(t *testing.T) {
	long := strings.Repeat("x", 1000)
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		if encoding := r.URL.Query().Get("encoding"); encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, r.URL.Query().Get("answer"))
	})
	s := newSink(t, nil)
	require.Equal(t, "no", string(s.Deliver(t.Context(), deliveryTo(r.URL+"?answer=no")).Response))
	require.Equal(t, long[:hook.MaxResponse], string(s.Deliver(t.Context(), deliveryTo(r.URL+"?answer="+long)).Response))
	require.Empty(t, s.Deliver(t.Context(), deliveryTo(r.URL+"?answer=zip&encoding=br")).Response)
}

// rawReceiver answers each connection's first request by hand and closes the connection.
func rawReceiver(t *testing.T, handle func(c net.Conn, request string)) (url string) {
	t.Helper()
	return "http://" + rawServer(t, func(c net.Conn) {
		if request, err := readRequest(c); err == nil {
			handle(c, request)
		}
	})
}

// rawServer serves connections by hand until the test ends.
func rawServer(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				serve(c)
				_ = c.Close() // the sink may have been faster
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		served.Wait()
	})
	return listener.Addr().String()
}

// readRequest reads a request with the body of deliveryTo.
func readRequest(c net.Conn) (string, error) {
	var got bytes.Buffer
	buf := make([]byte, 4096)
	for {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return "", err
		}
		n, err := c.Read(buf)
		got.Write(buf[:n])
		head, body, complete := strings.Cut(got.String(), "\r\n\r\n")
		if complete && len(body) >= len(`{"a": 1}`) {
			return head + "\r\n", nil
		}
		if err != nil {
			return "", fmt.Errorf("request cut short: %w", err)
		}
	}
}
