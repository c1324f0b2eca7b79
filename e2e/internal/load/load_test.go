package load_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v82/webhook"

	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
)

const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// run sends n events to a handler and returns the log.
func run(t *testing.T, handler http.HandlerFunc, cfg load.Config) []history.Request {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cfg.Targets, cfg.Dir = []string{server.URL}, t.TempDir()
	r, err := load.Start(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, r.Wait(t.Context()))
	require.NoError(t, r.Stop())
	requests, err := history.Read[history.Request](r.LogPath())
	require.NoError(t, err)
	return requests
}

func TestEveryAnswerIsLogged(t *testing.T) {
	var n atomic.Int64
	requests := run(t, func(w http.ResponseWriter, _ *http.Request) {
		i := n.Add(1)
		switch i % 3 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":"store_unavailable"}`)
		case 1:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"id":"h%d","status":"accepted"}`, i)
		default:
			panic(http.ErrAbortHandler)
		}
	}, load.Config{Makers: []load.Maker{load.Plain("raw", 600)}, Workers: 1, Count: 6})
	require.Len(t, requests, 6)
	var statuses []int
	for _, r := range requests {
		statuses = append(statuses, r.Status)
		require.Equal(t, r.Acked(), r.Error == "")
		require.Len(t, r.BodySHA256, 64)
	}
	require.Equal(t, []int{201, 0, 503, 201, 0, 503}, statuses)
	require.Equal(t, "h1", requests[0].ID)
}

func TestAResentEventKeepsKeyAndBody(t *testing.T) {
	var n atomic.Int64
	requests := run(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"h","duplicate":true}`)
	}, load.Config{Makers: []load.Maker{load.Stripe("pay", "whsec_x")}, Workers: 1, Count: 1, Resend: true})
	require.Len(t, requests, 2)
	require.Equal(t, requests[0].Key, requests[1].Key)
	require.Equal(t, requests[0].BodySHA256, requests[1].BodySHA256)
	require.True(t, requests[1].Duplicate)
}

func TestARefusedEventIsNotResent(t *testing.T) {
	requests := run(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"verification_failed"}`)
	}, load.Config{Makers: []load.Maker{load.Plain("raw", 10)}, Workers: 2, Count: 4, Resend: true})
	require.Len(t, requests, 4)
	require.True(t, requests[0].Refused())
}

func TestTheProvidersOwnLibrariesSign(t *testing.T) {
	t.Run("stripe", func(t *testing.T) {
		for seq := range 5 {
			e, err := load.Stripe("pay", "whsec_x")(seq)
			require.NoError(t, err)
			require.NoError(t, stripe.ValidatePayload(e.Body, e.Header.Get("Stripe-Signature"), "whsec_x"))
		}
	})
	t.Run("standard webhooks", func(t *testing.T) {
		maker, err := load.StandardWebhooks("sw", whsec)
		require.NoError(t, err)
		wh, err := standardwebhooks.NewWebhook(whsec)
		require.NoError(t, err)
		text := map[bool]int{}
		for seq := range 6 {
			e, err := maker(seq)
			require.NoError(t, err)
			require.NoError(t, wh.Verify(e.Body, e.Header))
			text[utf8.Valid(e.Body)]++
		}
		require.Equal(t, map[bool]int{true: 4, false: 2}, text)
	})
	t.Run("github", func(t *testing.T) {
		g, err := load.NewGitHub(t.Context(), "hub", "It's a Secret to Everybody")
		require.NoError(t, err)
		e, err := g.Make(2)
		require.NoError(t, err)
		require.Contains(t, string(e.Body), "\U0001F409")
		require.Regexp(t, `^sha256=[0-9a-f]{64}$`, e.Header.Get("X-Hub-Signature-256"))
		again, err := g.Make(2)
		require.NoError(t, err)
		require.Equal(t, e, again)
		require.NoError(t, g.Close())
	})
}

func TestBodiesOfDifferentEventsDiffer(t *testing.T) {
	sw, err := load.StandardWebhooks("sw", whsec)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, maker := range []load.Maker{load.Plain("raw", 600), load.Stripe("pay", "whsec_x"), sw} {
		for seq := range 300 {
			e, err := maker(seq)
			require.NoError(t, err)
			require.False(t, seen[string(e.Body)])
			seen[string(e.Body)] = true
		}
	}
}
