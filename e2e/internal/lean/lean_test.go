package lean_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/lean"
)

const id = "01890000-0000-7000-8000-000000000001"

func TestTheLoadSendsWellFormedRequestsAndCountsAnswers(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) != 512 || r.URL.Path != "/webhooks/raw" || n.Add(1)%10 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"`+id+`","status":"accepted"}`)
	}))
	defer server.Close()
	out, err := lean.Load{
		Addr: strings.TrimPrefix(server.URL, "http://"), Path: "/webhooks/raw", Conns: 4, Body: 512, Count: 100, Times: true,
	}.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{90, 10, 0}, []int{out.Accepted, out.Refused, out.Broken})
	require.Len(t, out.Times, 90)
	require.Equal(t, id, out.Times[0].ID)
}

func TestTheLoadKeepsToItsRateAndItsTime(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	out, err := lean.Load{
		Addr: strings.TrimPrefix(server.URL, "http://"), Path: "/", Conns: 8, Rate: 200, Duration: 500 * time.Millisecond,
	}.Run(t.Context())
	require.NoError(t, err)
	require.LessOrEqual(t, out.Accepted, 100)
	require.GreaterOrEqual(t, out.Elapsed, 500*time.Millisecond)
}

func TestALoadThatReachesNobodyIsAnError(t *testing.T) {
	_, err := lean.Load{Addr: "127.0.0.1:1", Path: "/", Conns: 2, Count: 4}.Run(t.Context())
	require.ErrorContains(t, err, "nothing was accepted")
}

func TestTheReceiverCountsEachHookOnceAndKeepsItsFirstArrival(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r := &lean.Receiver{First: true, Delay: time.Millisecond}
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	for _, hook := range []string{id, id, strings.Replace(id, "1", "2", 1)} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String(), bytes.NewReader(make([]byte, 100_000)))
		require.NoError(t, err)
		req.Header.Set("X-Ankusa-Id", hook)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	require.NoError(t, r.Until(ctx, 2))
	require.Equal(t, 2, r.Count())
	require.Equal(t, 1, r.Repeats())
	require.Len(t, r.Arrivals(), 2)
	cancel()
	require.NoError(t, <-done)
}
