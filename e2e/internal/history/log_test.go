package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/history"
)

func TestALogReadsBackWhatWasAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attempts.jsonl")
	log, err := history.Create[history.Attempt](path)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			log.Append(history.Attempt{ID: fmt.Sprint(i), Arrived: time.Unix(1, 2).UTC(), RetryAfter: time.Second})
		})
	}
	wg.Wait()
	require.NoError(t, log.Close())

	entries, err := history.Read[history.Attempt](path)
	require.NoError(t, err)
	require.Len(t, entries, 50)
	require.Equal(t, time.Unix(1, 2).UTC(), entries[0].Arrived)
	require.Equal(t, time.Second, entries[0].RetryAfter)
}

func TestALogIsNeverOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acks.jsonl")
	log, err := history.Create[history.Request](path)
	require.NoError(t, err)
	require.NoError(t, log.Close())
	_, err = history.Create[history.Request](path)
	require.ErrorIs(t, err, os.ErrExist)
}

func TestATornLogIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acks.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"seq\":1}\n{\"se"), 0o600))
	_, err := history.Read[history.Request](path)
	require.ErrorContains(t, err, "entry 1")
}
