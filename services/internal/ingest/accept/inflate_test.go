package accept_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/source"
)

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

var asGzip = hook.Header{Name: "Content-Encoding", Value: "gzip"}

func keyed(name string) *source.Source {
	s := plain("default", name)
	s.Dedupe = &source.Dedupe{JSON: "id", TTL: time.Hour}
	return s
}

// A flood of small bodies that inflate to the cap once held all of them inflated at the same time.
func TestABodyWaitsForItsTurnToBeInflated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, accept.Default(), keyed("a"), plain("default", "keyless"))
		leave := b.OccupyInflation()
		body := zipped(t, `{"id":"1"}`)
		require.Equal(t, accept.Committed, b.post(t.Context(), "a", `{"id":"2"}`).Kind, "it is plain")
		require.Equal(t, accept.Committed, b.post(t.Context(), "keyless", body, asGzip).Kind, "nothing is read of it")

		var late accept.Result
		go func() { late = b.post(t.Context(), "a", body, asGzip) }()
		synctest.Wait()
		require.Zero(t, late.Kind)
		leave()
		synctest.Wait()
		require.Equal(t, accept.Committed, late.Kind)
	})
}

func TestABodyThatIsNotInflatedInTimeIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, accept.Default(), keyed("a"))
		defer b.OccupyInflation()()
		body := zipped(t, `{"id":"1"}`)
		began := time.Now()
		require.Equal(t, accept.Overload, b.post(t.Context(), "a", body, asGzip).Kind)
		require.Equal(t, 15*time.Second, time.Since(began))
		left, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, accept.Gone, b.post(left, "a", body, asGzip).Kind)
		require.Empty(t, b.writer.hooks())
	})
}
