package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

func TestI11_ProbersLeaveOneKey(t *testing.T) {
	b := newBench(t, nil)
	for range 3 {
		other, err := Open(t.Context(), b.kv, Options{})
		require.NoError(t, err)
		require.NoError(t, other.Ready(t.Context()))
	}
	require.NoError(t, b.kv.View(t.Context(), func(r kv.Reader) error {
		pairs, err := r.Scan(context.Background(), kv.Scan{Range: clusterKey(famProbe).all(), Limit: 10})
		require.Len(t, pairs, 1)
		return err
	}))
}

func TestAConflictOfProbersProvesThatTheStoreTakesCommits(t *testing.T) {
	b := newBench(t, nil)
	for kind, ready := range map[faultkv.Kind]bool{
		faultkv.Conflict: true, faultkv.Unavailable: false, faultkv.UndeterminedLanded: false,
	} {
		b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update, faultkv.Fault{Kind: kind}))
		if err := b.Ready(t.Context()); ready {
			require.NoError(t, err)
		} else {
			require.Error(t, err)
		}
	}
}
