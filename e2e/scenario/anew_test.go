package scenario_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/receiver"
)

// TestASourceThatIsMadeAnewGetsNothingOfTheOldOne: what was pending is a dead letter, and never reaches a sink of the new
// source, though that has the same name.
func TestASourceThatIsMadeAnewGetsNothingOfTheOldOne(t *testing.T) {
	w := four(t, harness.Options{})
	ctx, cancel := w.soon()
	defer cancel()
	w.receiver.Behave("/old", receiver.Answer(http.StatusServiceUnavailable))
	w.put(ctx, http.MethodPost, "", map[string]any{"name": "again", "sinks": w.sink("/old")})
	old := w.acceptedBy(ctx, "again", 5)
	w.tried(ctx, "/old")
	sources := w.cluster.Admin + "/v1/tenants/default/sources"
	status, body := w.request(ctx, http.MethodDelete, sources+"/again", nil)
	require.Equal(t, http.StatusConflict, status, body)
	status, body = w.request(ctx, http.MethodDelete, sources+"/again?deliveries=nonsense", nil)
	require.Equal(t, http.StatusBadRequest, status, body)
	status, body = w.request(ctx, http.MethodDelete, sources+"/again?deliveries=dead_letter", nil)
	require.Equal(t, http.StatusNoContent, status, body)
	for _, d := range w.deadOf(ctx, old) {
		require.Equal(t, "again", d.SourceID)
		require.Equal(t, "source_gone", d.Reason)
	}

	w.receiver.Behave("/old", receiver.Answer(http.StatusOK))
	w.put(ctx, http.MethodPost, "", map[string]any{"name": "again", "sinks": w.sink("/old")})
	fresh := w.acceptedBy(ctx, "again", 5)
	require.NoError(t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks(fresh)) == 0 }))
	require.Len(t, w.receiver.Lacks(old), len(old), "the old ones stay dead")
	require.Len(t, w.deadOf(ctx, old), len(old))
	w.nobodyDied()
}
