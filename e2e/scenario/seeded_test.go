package scenario_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/check"
	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
)

// seeded is how many hooks each front harms.
const seeded = 5

// TestSeededFaultsAreFoundInARealRun harms some hooks of a healthy product on their way in and out. A checker that let
// one of them pass would be worth nothing.
func TestSeededFaultsAreFoundInARealRun(t *testing.T) {
	w := newWorld(t)
	behind := front(t, w.receiver.URL(""), map[string]harm{
		"/lost": func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) { rw.WriteHeader(http.StatusOK) },
		"/twice": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			again := r.Clone(r.Context())
			body, _ := io.ReadAll(r.Body)
			r.Body, again.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(httptest.NewRecorder(), again)
			next.ServeHTTP(rw, r)
		},
		"/changed": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			body, _ := io.ReadAll(r.Body)
			body[len(body)/2] ^= 1
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(rw, r)
		},
	})
	sources := map[string]any{}
	for _, name := range []string{"lost", "twice", "changed", "early"} {
		sink := w.sink("/")[0].(map[string]any)
		sink["url"] = behind + "/" + name
		sources[name] = map[string]any{"verify": map[string]any{"type": "none"}, "sinks": []any{sink}}
	}
	w.start(harness.Options{Sources: sources}, harness.StartOne)
	before := front(t, w.cluster.Targets[0], map[string]harm{
		"/webhooks/early": func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
			rw.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(rw, `{"id":"early-%s","status":"accepted"}`, r.Header.Get("Seq"))
		},
	})
	w.send(load.Config{
		Targets: []string{before}, Workers: 4, Count: 160,
		Makers: []load.Maker{numbered("lost"), numbered("twice"), numbered("changed"), numbered("early")},
	})
	w.complete()

	found := map[check.Invariant]map[string]bool{}
	for _, v := range w.verdict(5 * time.Second).Violations {
		if found[v.Invariant] == nil {
			found[v.Invariant] = map[string]bool{}
		}
		found[v.Invariant][v.Hook] = true
	}
	early := 0
	for id := range found[check.Lost] {
		if strings.HasPrefix(id, "early-") {
			early++
		}
	}
	require.Equal(t, seeded, early, "acknowledged too early")
	require.Len(t, found[check.Lost], 2*seeded, "acknowledged too early, and lost")
	require.Len(t, found[check.Repeated], seeded, "delivered twice")
	require.Len(t, found[check.Changed], seeded, "changed")
	require.Len(t, found[check.Unsigned], seeded, "changed, so not signed any more")
	require.Len(t, found, 4, "nothing else is wrong")
}

// numbered marks requests, so that a front can invent ids.
func numbered(source string) load.Maker {
	plain := load.Plain(source, 300)
	return func(seq int) (load.Event, error) {
		e, err := plain(seq)
		e.Header.Set("Seq", fmt.Sprint(seq))
		return e, err
	}
}

// harm handles a request in place of next.
type harm func(w http.ResponseWriter, r *http.Request, next http.Handler)

// front passes requests on to target, and harms the first few of each path that is named.
func front(t *testing.T, target string, harms map[string]harm) string {
	t.Helper()
	to, err := url.Parse(target)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(to)
	counts := map[string]*atomic.Int64{}
	for path := range harms {
		counts[path] = new(atomic.Int64)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if do := harms[r.URL.Path]; do != nil && counts[r.URL.Path].Add(1) <= seeded {
			do(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
