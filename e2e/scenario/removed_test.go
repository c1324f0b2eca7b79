package scenario_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/receiver"
)

// TestASinkThatIsRemovedEndsWhatIsOwedToIt: a delivery is bound to its sink when its hook is accepted. It goes to the sink
// that stands in that place now, or to another of the same type, and where there is none it is a dead letter.
func TestASinkThatIsRemovedEndsWhatIsOwedToIt(t *testing.T) {
	w := four(t, harness.Options{})
	ctx, cancel := w.soon()
	defer cancel()
	w.receiver.Behave("/first", receiver.Answer(http.StatusServiceUnavailable))
	w.receiver.Behave("/second", receiver.Answer(http.StatusServiceUnavailable))
	both := append(w.sink("/first"), w.sink("/second")...)
	w.put(ctx, http.MethodPost, "", map[string]any{"name": "two", "sinks": both})
	ids := w.acceptedBy(ctx, "two", 3)
	w.tried(ctx, "/first", "/second")

	// One of the two is left: both deliveries of each hook go there.
	w.put(ctx, http.MethodPut, "/two", map[string]any{"sinks": w.sink("/left")})
	require.NoError(t, w.receiver.Wait(ctx, func() bool { return w.confirmedAt("/left") == 2*len(ids) }))
	require.Zero(t, w.confirmedAt("/first")+w.confirmedAt("/second"))

	// None of that type is left.
	w.receiver.Behave("/left", receiver.Answer(http.StatusServiceUnavailable))
	ids = w.acceptedBy(ctx, "two", 3)
	w.put(ctx, http.MethodPut, "/two", map[string]any{"sinks": []any{map[string]any{"type": "log"}}})
	dead := w.deadOf(ctx, ids)
	for _, d := range dead {
		require.Equal(t, "two", d.SourceID)
		require.Equal(t, "sink_gone 0 http", d.Reason)
	}
	require.NoError(t, w.remove(ctx, "two"), "nothing of it is pending any more")
	w.nobodyDied()
}

// put writes a source that verifies nothing.
func (w *world) put(ctx context.Context, method, path string, source map[string]any) {
	w.t.Helper()
	source["verify"] = map[string]any{"type": "none"}
	source["retry"] = map[string]any{"base_ms": 50, "max_ms": 200}
	text, err := json.Marshal(source)
	require.NoError(w.t, err)
	status, body := w.request(ctx, method, w.cluster.Admin+"/v1/tenants/default/sources"+path, text)
	require.Less(w.t, status, 300, body)
}

// acceptedBy posts n hooks to a source, in turns through every ingest, as soon as they know it.
func (w *world) acceptedBy(ctx context.Context, source string, n int) (ids []string) {
	w.t.Helper()
	for len(ids) < n {
		status, body := w.request(ctx, http.MethodPost, w.cluster.Targets[len(ids)%len(w.cluster.Targets)]+"/webhooks/"+source, []byte("x"))
		if status == http.StatusNotFound { // learned within a second
			w.pass(50 * time.Millisecond)
			continue
		}
		require.Equal(w.t, http.StatusCreated, status, body)
		var answer struct {
			ID string `json:"id"`
		}
		require.NoError(w.t, json.Unmarshal([]byte(body), &answer))
		ids = append(ids, answer.ID)
	}
	return ids
}

// tried returns when an attempt was made at each path.
func (w *world) tried(ctx context.Context, paths ...string) {
	w.t.Helper()
	require.NoError(w.t, w.receiver.Wait(ctx, func() bool {
		tries := w.attemptsByPath()
		for _, path := range paths {
			if tries[path] == 0 {
				return false
			}
		}
		return true
	}))
}

// confirmedAt counts the attempts that a path confirmed.
func (w *world) confirmedAt(path string) (n int) {
	w.t.Helper()
	attempts, err := history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(w.t, err)
	for _, a := range attempts {
		if a.Path == path && a.Confirmed() {
			n++
		}
	}
	return n
}

// deadOf waits until all of the hooks are listed as dead, and returns their entries.
func (w *world) deadOf(ctx context.Context, ids []string) (found []history.DeadLetter) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		dead, err := w.cluster.DeadLetters(ctx)
		if err != nil {
			return false
		}
		found = found[:0]
		for _, d := range dead {
			for _, id := range ids {
				if d.ID == id {
					found = append(found, d)
				}
			}
		}
		return len(found) >= len(ids)
	}, patience, 100*time.Millisecond)
	return found
}
