package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/ingest/httpapi"
)

// acceptor answers what it is told to.
type acceptor struct {
	found, result accept.Result
	refused       accept.Result
	tenant, name  string
	readErr       error
	accepted      bool
	headers       []hook.Header
	wait          time.Duration
	left          bool
}

func (a *acceptor) Find(_ context.Context, tenant, name string) (accept.Target, accept.Result) {
	a.tenant, a.name = tenant, name
	return accept.Target{}, a.found
}

func (a *acceptor) Accept(ctx context.Context, _ accept.Target, headers []hook.Header, _ []byte, _ time.Time) accept.Result {
	a.accepted, a.headers = true, headers
	if a.wait > 0 {
		select {
		case <-time.After(a.wait):
		case <-ctx.Done():
			a.left = true
		}
	}
	return a.result
}

func (a *acceptor) Refuse(r accept.Result) accept.Result { a.refused = r; return r }
func (a *acceptor) MaxBodyBytes() int                    { return 1 << 20 }

func (a *acceptor) ReadBody(r io.Reader, _ int64, progress func(int) error) (accept.Body, error) {
	if a.readErr != nil {
		return accept.Body{}, a.readErr
	}
	n, buffer := 0, make([]byte, 1<<10)
	for {
		more, err := r.Read(buffer)
		if n += more; errors.Is(err, io.EOF) {
			return accept.Body{}, nil
		}
		if err == nil {
			err = progress(n)
		}
		if err != nil {
			return accept.Body{}, err
		}
	}
}

func handler(a *acceptor) *httpapi.Handler {
	return httpapi.New(httpapi.Default(), a, http.NotFoundHandler())
}

func post(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
	return w
}

func TestI1_OnlyWhatIsCommittedIsAnswered2xx(t *testing.T) {
	for kind := accept.Committed; kind <= accept.Gone; kind++ {
		w := post(handler(&acceptor{result: accept.Result{Kind: kind, Reason: "why"}}), "/webhooks/a")
		acknowledged := kind == accept.Committed || kind == accept.Duplicate
		require.Equal(t, acknowledged, w.Code/100 == 2, kind.Code())
		require.Equal(t, acknowledged, w.Code == 201, "there is no other 2xx")
		require.True(t, json.Valid(w.Body.Bytes()), w.Body.String())
		require.Equal(t, w.Code == 503, w.Header().Get("Retry-After") == "1", kind.Code())
	}
}

func TestBodiesOfAnswers(t *testing.T) {
	id := hook.ID{6: 0x70, 8: 0x80}
	for _, c := range []struct {
		result accept.Result
		status int
		body   string
	}{
		{accept.Result{Kind: accept.Committed, ID: id}, 201, `{"status":"accepted","id":"00000000-0000-7000-8000-000000000000"}`},
		{accept.Result{Kind: accept.Duplicate, ID: id}, 201, `{"status":"accepted","id":"00000000-0000-7000-8000-000000000000","duplicate":true}`},
		{accept.Result{Kind: accept.VerificationFailed, Reason: "no_match"}, 401, `{"error":"verification_failed","reason":"no_match"}`},
		{accept.Result{Kind: accept.PayloadTooLarge, Limit: 8_000_000}, 413, `{"error":"payload_too_large","limit":8000000}`},
		{accept.Result{Kind: accept.InvalidHeader, Reason: `x"`}, 400, `{"error":"invalid_header","header":"x\""}`},
		{accept.Result{Kind: accept.Overload}, 503, `{"error":"overload"}`},
		{accept.Result{Kind: accept.StoreUnavailable, Err: errors.New("tikv: secret place")}, 503, `{"error":"store_unavailable"}`},
		{accept.Result{Kind: accept.UnknownSource}, 404, `{"error":"unknown_source"}`},
	} {
		w := post(handler(&acceptor{result: c.result}), "/webhooks/a")
		require.Equal(t, c.status, w.Code)
		require.Equal(t, c.body, w.Body.String())
	}
}

func TestReadErrorsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		body   string
	}{
		{accept.ErrBodyTooLarge, 413, `{"error":"payload_too_large","limit":1048576}`},
		{accept.ErrNoRoom, 503, `{"error":"overload"}`},
		{os.ErrDeadlineExceeded, 400, `{"error":"body_read_failed","reason":"too slow"}`},
		{io.ErrUnexpectedEOF, 400, `{"error":"body_read_failed","reason":"shorter than announced"}`},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, 400, `{"error":"body_read_failed","reason":"connection lost"}`},
		{errors.New("invalid byte in chunk length"), 400, `{"error":"body_read_failed","reason":"malformed framing"}`},
	} {
		a := &acceptor{readErr: c.err, result: accept.Result{Kind: accept.Committed}}
		w := post(handler(a), "/webhooks/a")
		require.Equal(t, c.status, w.Code)
		require.Equal(t, c.body, w.Body.String())
		require.False(t, a.accepted)
	}
}

// net/http quotes a trailer that it cannot parse, and what a result carries is logged.
func TestL48_WhatABodyWithABadTrailerSaysIsNotKept(t *testing.T) {
	a := &acceptor{result: accept.Result{Kind: accept.Committed}}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		_, err := io.WriteString(c, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nSECRET-PAYLOAD\r\n\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.NoError(t, c.Close())
	})
	require.Equal(t, "malformed framing", a.refused.Reason)
	require.NotContains(t, fmt.Sprint(a.refused), "SECRET-PAYLOAD")
}

func TestHeadersAreInOneOrderWithTheirValuesInTheirs(t *testing.T) {
	a := &acceptor{result: accept.Result{Kind: accept.Committed}}
	r := httptest.NewRequest(http.MethodPost, "/webhooks/a", nil)
	r.Header = http.Header{"X-B": {"2", "1"}, "A": {"x"}, "C": {}}
	handler(a).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, []hook.Header{{Name: "A", Value: "x"}, {Name: "X-B", Value: "2"}, {Name: "X-B", Value: "1"}}, a.headers)
}

// inBubble serves over connections without a network, so that the clock is the bubble's.
func inBubble(t *testing.T, a *acceptor, use func(dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn)}
		server, err := httpapi.NewServer(httpapi.Default(), handler(a), prometheus.NewRegistry(), zap.NewNop())
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		use(l.dial)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
		time.Sleep(time.Minute) // until whoever still drips has noticed
	})
}

type pipes struct{ conns chan net.Conn }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipes) Close() error   { close(p.conns); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
}

// ends reads until the server closes, and says how long that took.
func ends(c net.Conn) (string, time.Duration) {
	began := time.Now()
	text, _ := io.ReadAll(c)
	return string(text), time.Since(began)
}

const head = "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"

// A body without a known end would be taken for an empty one, and acknowledged.
func TestABodyOfHTTP10WithoutALengthIsRefused(t *testing.T) {
	for framing, want := range map[string]string{
		"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n": `400 Bad Request`,
		"\r\nhello":                      `400 Bad Request`,
		"Content-Length: 0\r\n\r\n":      `201 Created`,
		"Content-Length: 5\r\n\r\nhello": `201 Created`,
	} {
		a := &acceptor{result: accept.Result{Kind: accept.Committed}}
		inBubble(t, a, func(dial func() net.Conn) {
			c := dial()
			go func() { _, _ = io.WriteString(c, "POST /webhooks/a HTTP/1.0\r\nHost: a\r\n"+framing) }()
			text, _ := ends(c)
			require.Contains(t, text, want, framing)
		})
	}
}

func TestL41_ASenderThatDoesNotFinishItsHeadersIsCutOff(t *testing.T) {
	a := &acceptor{}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\n")
		_, after := ends(c)
		require.Equal(t, 10*time.Second, after)
	})
	require.False(t, a.accepted)
}

func TestL41_ASenderThatBeginsNoBodyIsCutOff(t *testing.T) {
	a := &acceptor{}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, head)
		text, after := ends(c)
		require.Contains(t, text, `{"error":"body_read_failed","reason":"too slow"}`)
		require.LessOrEqual(t, after, 41*time.Second)
	})
	require.False(t, a.accepted)
}

func TestL41_ASenderBelowTheLowestRateIsCutOff(t *testing.T) {
	a := &acceptor{}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, head)
		drip(c, 1, time.Second) // so that no single read waits for long
		text, after := ends(c)
		require.Contains(t, text, `{"error":"body_read_failed","reason":"too slow"}`)
		require.Equal(t, 5*time.Second, after)
	})
	require.False(t, a.accepted)
}

func TestL41_ASenderAboveTheLowestRateIsWaitedForUpToTheDeadline(t *testing.T) {
	a := &acceptor{result: accept.Result{Kind: accept.Committed}}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, head)
		drip(c, 2000, time.Second) // done in 50 s, of 60
		text, after := ends(c)
		require.Contains(t, text, "201 Created")
		require.InDelta(t, 49, after.Seconds(), 2)
	})
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, head)
		drip(c, 1500, time.Second) // would be done in 66 s
		text, after := ends(c)
		require.Contains(t, text, "too slow")
		require.Equal(t, time.Minute, after)
	})
}

// drip writes n bytes per pause until the body is whole or the connection ends.
func drip(c net.Conn, n int, pause time.Duration) {
	go func() {
		for left := 100_000; left > 0; left -= n {
			if _, err := c.Write(make([]byte, min(n, left))); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}()
}

func TestTheDeadlineOfABodyDoesNotEndTheWaitForTheCommit(t *testing.T) {
	a := &acceptor{result: accept.Result{Kind: accept.Committed}, wait: 25 * time.Second}
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, head)
		drip(c, 50_000, time.Second)
		text, after := ends(c)
		require.Contains(t, text, "201 Created")
		require.InDelta(t, 26, after.Seconds(), 1)
	})
	require.False(t, a.left)
	inBubble(t, a, func(dial func() net.Conn) {
		c := dial()
		send(t, c, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		text, _ := ends(c)
		require.Contains(t, text, "201 Created")
	})
	require.False(t, a.left)
}

func TestConnectionsPastTheBoundAreClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := httpapi.Default()
		config.MaxConnections = 2
		a := &acceptor{result: accept.Result{Kind: accept.Committed}}
		registry := prometheus.NewRegistry()
		server, err := httpapi.NewServer(config, httpapi.New(config, a, http.NotFoundHandler()), registry, zap.NewNop())
		require.NoError(t, err)
		l := &pipes{conns: make(chan net.Conn)}
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		first, second := l.dial(), l.dial()
		_, after := ends(l.dial())
		require.Zero(t, after)
		require.NoError(t, first.Close())
		synctest.Wait()
		third := l.dial()
		send(t, third, "POST /webhooks/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		text, _ := ends(third)
		require.Contains(t, text, "201 Created", "there is room again")
		require.NoError(t, second.Close())
		synctest.Wait()
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP ankusa_ingest_connections Open connections to the listener of hooks.
# TYPE ankusa_ingest_connections gauge
ankusa_ingest_connections 0
# HELP ankusa_ingest_connections_refused_total Connections closed at once, since there were too many.
# TYPE ankusa_ingest_connections_refused_total counter
ankusa_ingest_connections_refused_total 1
`)))
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
}
