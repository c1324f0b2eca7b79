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
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// doomed is a deployment with a source whose receiver is down, and the number of hooks it has pending.
func doomed(t *testing.T, n int, start func(context.Context, harness.Options) (*harness.Cluster, error)) *world {
	t.Helper()
	w := newWorld(t)
	w.receiver.Behave("/doomed", receiver.Answer(http.StatusServiceUnavailable))
	w.start(harness.Options{
		Schedulers: 2, Ingests: 2, Runners: 2,
		Sources: map[string]any{"doomed": map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.sink("/doomed")}},
	}, start)
	w.send(load.Config{Makers: []load.Maker{load.Plain("doomed", 200)}, Workers: 32, Count: n})
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(t, w.load.Wait(ctx))
	require.Len(t, w.load.Acked(), n)
	return w
}

// deletion asks for the end of the source and of what it has pending.
func (w *world) deletion(ctx context.Context) (int, string, error) {
	return w.try(ctx, http.MethodDelete, w.cluster.Admin+"/v1/tenants/default/sources/doomed?deliveries=dead_letter", nil)
}

// allDead returns when every one of the hooks is a dead letter, once, as its source is gone.
func (w *world) allDead(ids []string) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	var dead []history.DeadLetter
	require.Eventually(w.t, func() bool {
		var err error
		dead, err = w.cluster.DeadLetters(ctx)
		require.NoError(w.t, err)
		return len(dead) >= len(ids)
	}, patience, 200*time.Millisecond, "%d hooks were accepted", len(ids))
	listed := map[string]int{}
	for _, d := range dead {
		require.Equal(w.t, "source_gone", d.Reason)
		listed[d.ID]++
	}
	for _, id := range ids {
		require.Equal(w.t, 1, listed[id], id)
	}
	require.Len(w.t, listed, len(ids))
}

func TestADeletionTakesPendingDeliveriesAlong(t *testing.T) {
	for name, start := range map[string]func(context.Context, harness.Options) (*harness.Cluster, error){
		"one process": harness.StartOne, "four": harness.StartFour,
	} {
		t.Run(name, func(t *testing.T) {
			w := doomed(t, 500, start)
			ctx, cancel := w.soon()
			defer cancel()
			source := w.cluster.Admin + "/v1/tenants/default/sources/doomed"
			status, body := w.request(ctx, http.MethodDelete, source, nil)
			require.Equal(t, http.StatusConflict, status, body)
			require.Contains(t, body, `"source_has_deliveries"`)
			status, body = w.request(ctx, http.MethodDelete, source+"?deliveries=keep", nil)
			require.Equal(t, http.StatusBadRequest, status)
			require.JSONEq(t, `{"error":"invalid_filter","field":"deliveries"}`, body)

			late := w.accepting(ctx)
			status, body, err := w.deletion(ctx)
			require.NoError(t, err)
			require.Equal(t, http.StatusNoContent, status, body)
			ids := append(w.load.Acked(), <-late...)
			w.allDead(ids)
			status, _, err = w.deletion(ctx)
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, status)

			w.livesAgain(ctx)
			w.allDead(ids) // and nothing more
			w.nobodyDied()
		})
	}
}

// accepting sends hooks for as long as the source takes them, and tells which it took once it is gone. The source is
// closed for a moment before.
func (w *world) accepting(ctx context.Context) <-chan []string {
	took := make(chan []string, 1)
	go func() {
		var ids []string
		for n := 0; ctx.Err() == nil && n < 20; {
			status, body, err := w.try(ctx, http.MethodPost, w.cluster.Targets[0]+"/webhooks/doomed", []byte("late"))
			var answer struct {
				ID string `json:"id"`
			}
			switch {
			case err == nil && status == http.StatusCreated && json.Unmarshal([]byte(body), &answer) == nil:
				ids, n = append(ids, answer.ID), 0
			case err == nil && status == http.StatusNotFound:
				n++
			}
		}
		took <- ids
	}()
	return took
}

// livesAgain creates the source anew: it inherits nothing, and delivers at once.
func (w *world) livesAgain(ctx context.Context) {
	w.t.Helper()
	w.receiver.Behave("/doomed", receiver.Answer(http.StatusOK))
	spec, err := json.Marshal(map[string]any{"name": "doomed", "verify": map[string]any{"type": "none"}, "sinks": w.sink("/doomed")})
	require.NoError(w.t, err)
	status, body := w.request(ctx, http.MethodPost, w.cluster.Admin+"/v1/tenants/default/sources", spec)
	require.Equal(w.t, http.StatusCreated, status, body)
	var answer struct {
		ID string `json:"id"`
	}
	require.Eventually(w.t, func() bool {
		status, body, err := w.try(ctx, http.MethodPost, w.cluster.Targets[0]+"/webhooks/doomed", []byte("anew"))
		return err == nil && status == http.StatusCreated && json.Unmarshal([]byte(body), &answer) == nil
	}, 10*time.Second, 50*time.Millisecond)
	require.NoError(w.t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks([]string{answer.ID})) == 0 }))
	require.Equal(w.t, 1, w.receiver.Confirmed())
}

// TestI2_ADeletionThatDiesIsFinishedByAnother kills whoever leads while the deletion moves rows.
func TestI2_ADeletionThatDiesIsFinishedByAnother(t *testing.T) {
	for name, c := range map[string]struct {
		start func(context.Context, harness.Options) (*harness.Cluster, error)
		kill  func(*world)
	}{
		"one process": {harness.StartOne, func(w *world) {
			require.NoError(w.t, w.cluster.One.Kill())
			w.again(w.cluster.One)
		}},
		"four": {harness.StartFour, func(w *world) { require.NoError(w.t, w.cluster.Schedulers[w.leader()].Kill()) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := doomed(t, scaled(4000, 20000), c.start)
			ctx, cancel := w.soon()
			defer cancel()
			go func() { _, _, _ = w.deletion(ctx) }()
			require.Eventually(t, func() bool {
				dead, err := w.cluster.DeadLetters(ctx)
				return err == nil && len(dead) > 0
			}, patience, time.Millisecond)
			c.kill(w)
			require.Eventually(t, func() bool {
				status, _, err := w.deletion(ctx)
				return err == nil && (status == http.StatusNoContent || status == http.StatusNotFound)
			}, patience, 100*time.Millisecond)
			w.allDead(w.load.Acked())
		})
	}
}
