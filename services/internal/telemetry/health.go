package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"time"
)

// Process is what a process says about itself.
type Process struct {
	Instance string
	Version  string
	Roles    []string
}

// Check is one condition of readiness. Check returns an empty text when it holds, else a word for clients that names
// what is missing, such as "store_unavailable".
type Check struct {
	// Name is the field of the answer that carries the word, such as "store".
	Name  string
	Check func(ctx context.Context) string
}

// Bounds of a readiness check.
const (
	checkEvery   = time.Second
	checkTimeout = 2 * time.Second
)

// Cached is the check, done at most once a second, for however many ask. A check that takes longer than 2 s has its
// context cancelled.
func Cached(c Check) Check {
	cache := &checkCache{check: c.Check, turn: make(chan struct{}, 1)}
	return Check{Name: c.Name, Check: cache.word}
}

type checkCache struct {
	check func(context.Context) string
	// turn is held by who checks; at and last are its own.
	turn chan struct{}
	at   time.Time
	last string
}

func (c *checkCache) word(ctx context.Context) string {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if !c.at.IsZero() && time.Since(c.at) < checkEvery {
		return c.last
	}
	// One caller asks for all, so its own going away must not fail the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	c.last = c.check(ctx)
	c.at = time.Now()
	return c.last
}

// Register adds GET /health, /ready and /metrics. /ready answers 200 when every check holds, else 503 with Retry-After
// and a word per check that does not. Checks are cached.
func Register(mux *http.ServeMux, p Process, m *Metrics, checks ...Check) {
	checks = slices.Clone(checks)
	for i, c := range checks {
		checks[i] = Cached(c)
	}
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.health()) })
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) { ready(w, r, p, checks) })
	mux.Handle("GET /metrics", m.Handler())
}

// Handler is Register on a mux of its own; any other path is 404, where http.ServeMux would redirect some.
func Handler(p Process, m *Metrics, checks ...Check) http.Handler {
	mux := http.NewServeMux()
	Register(mux, p, m, checks...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			h.ServeHTTP(w, r)
			return
		}
		answer(w, http.StatusNotFound, map[string]any{"error": "not_found"})
	})
}

func (p Process) health() map[string]any {
	return map[string]any{
		"status": "ok", "instance": p.Instance, "version": p.Version, "roles": slices.Sorted(slices.Values(p.Roles)),
	}
}

func ready(w http.ResponseWriter, r *http.Request, p Process, checks []Check) {
	body := map[string]any{"status": "ok", "instance": p.Instance}
	status := http.StatusOK
	for _, c := range checks {
		if word := c.Check(r.Context()); word != "" {
			status = http.StatusServiceUnavailable
			body["status"], body["error"], body[c.Name] = "unavailable", "not_ready", word
			w.Header().Set("Retry-After", "1")
		}
	}
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has gone
}

// Missing is what the /ready of a handler that Register made says is missing: words by the names of the checks.
func Missing(ctx context.Context, h http.Handler) map[string]string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/ready", nil)
	if err != nil {
		return map[string]string{"ready": err.Error()} // the request is a constant
	}
	var a recorded
	h.ServeHTTP(&a, request)
	if a.status == http.StatusOK {
		return nil
	}
	missing := map[string]string{}
	if err := json.Unmarshal(a.body.Bytes(), &missing); err != nil {
		return map[string]string{"ready": "unavailable"} // not of Register's making
	}
	for _, other := range []string{"status", "instance", "error"} {
		delete(missing, other)
	}
	return missing
}

// recorded is an answer that stays within the process.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorded) WriteHeader(status int) { r.status = status }

func (r *recorded) Write(data []byte) (int, error) { return r.body.Write(data) }
