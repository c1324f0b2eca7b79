package scheduler

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/scheduler/core"
)

func TestReadsOfAPartitionWaitForEachOtherAlone(t *testing.T) {
	a := newAdmission()
	for range core.PartitionReads {
		require.NoError(t, a.enter(t.Context(), 3))
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.enter(over, 3), context.Canceled)
	require.NoError(t, a.enter(t.Context(), 4))
	a.leave(3)
	require.NoError(t, a.enter(t.Context(), 3))
}
