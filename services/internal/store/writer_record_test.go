package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv/faultkv"
)

func TestABeatNeverTakesBackAFlagThatOvertookIt(t *testing.T) {
	b := newBench(t, nil)
	w := b.recorded()
	overtaken := false
	b.port.SetHooks(faultkv.Hooks{Before: func(ctx context.Context, _ faultkv.Commit) error {
		if overtaken {
			return nil
		}
		overtaken = true
		return w.RaiseFlag(ctx) // between the beat's look at the flag and its commit
	}})
	require.NoError(t, w.Beat(t.Context()))
	require.True(t, overtaken)
	records, err := b.Writers(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.True(t, records[0].Flagged)
}
