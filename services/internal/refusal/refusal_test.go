package refusal

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the server refuses below the handler is answered as everything else is. A release of Go that words it differently
// fails here.
func TestRequestsThatCannotBeReadAreAnsweredByJSON(t *testing.T) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "HTTP/1.1 400 x"+string(refusalHead), http.StatusTeapot)
	})
	server := &http.Server{
		Handler: plain, MaxHeaderBytes: MaxHeaderBytes, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(AsJSON(l)) }()
	for request, want := range map[string]struct {
		status int
		body   map[string]any
	}{
		"nonsense\r\n\r\n":                                              {400, map[string]any{"error": "malformed_request"}},
		"GET / HTTP/1.1\r\n\r\n":                                        {400, map[string]any{"error": "malformed_request", "reason": "missing required Host header"}},
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                  {400, map[string]any{"error": "malformed_request"}},
		"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n":                  {400, map[string]any{"error": "malformed_request"}},
		"GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n":                 {400, map[string]any{"error": "malformed_request"}},
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n":      {400, map[string]any{"error": "malformed_request"}},
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n": {501, map[string]any{"error": "unsupported_transfer_encoding"}},
		"GET / HTTP/3.7\r\nHost: a\r\n\r\n":                             {505, map[string]any{"error": "unsupported_http_version"}},
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 2*MaxHeaderBytes) + "\r\n\r\n": {
			431, map[string]any{"error": "headers_too_large", "limit": float64(MaxHeaderBytes)},
		},
	} {
		name := fmt.Sprintf("%.60q", request)
		resp, text := exchange(t, l.Addr(), request)
		require.Equal(t, want.status, resp.StatusCode, name)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"), name)
		require.True(t, resp.Close, name)
		body := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(text), &body), "%s: %s", name, text)
		require.Equal(t, want.body, body, name)
	}
	resp, text := exchange(t, l.Addr(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	require.Equal(t, "HTTP/1.1 400 x"+string(refusalHead)+"\n", text, "the handler's own answers are left alone")
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

func exchange(t *testing.T, to net.Addr, request string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, _ = io.WriteString(c, request) // the server may have had enough before its end
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func FuzzRefusalKeepsItsHandsOffOtherAnswers(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 400 Bad Request: x" + string(refusalHead) + "400 Bad Request: x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		answer, refused := refusal(b)
		if !refused {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(answer))), nil)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body := map[string]any{}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
		require.GreaterOrEqual(t, resp.StatusCode, 400)
	})
}
