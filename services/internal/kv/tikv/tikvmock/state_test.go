package tikvmock

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimestampsIncreaseOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.json")
	var last uint64
	for range 3 {
		s := newState(path)
		require.NoError(t, s.load())
		for range 100 {
			ts, err := s.now()
			require.NoError(t, err)
			require.Greater(t, ts, last)
			last = ts
		}
	}
}

func TestTimestampsIncreaseWhenTheClockStandsStill(t *testing.T) {
	s := newState("")
	s.last.physical = time.Now().Add(time.Hour).UnixMilli()
	var last uint64
	for range 10 {
		physical, logical, err := s.timestamps(1 << (logicalBits - 2))
		require.NoError(t, err)
		require.Less(t, logical, int64(1)<<logicalBits)
		ts := uint64(physical)<<logicalBits | uint64(logical)
		require.GreaterOrEqual(t, ts-last, uint64(1)<<(logicalBits-2), "the batches overlap")
		last = ts
	}
}

func TestSafePointsAreThoseOfACurrentPD(t *testing.T) {
	k := &newState("").kept
	require.Error(t, k.moveTxnSafe(10, 60), "gc_worker's must not expire")
	require.NoError(t, k.moveTxnSafe(10, math.MaxInt64))
	require.Error(t, k.moveTxnSafe(9, math.MaxInt64), "never back")
	k.setBarrier("backup", 5, 60)
	require.Empty(t, k.Barriers, "too late")
	k.setBarrier("backup", 20, 60)
	require.NoError(t, k.moveTxnSafe(30, math.MaxInt64))
	require.Equal(t, uint64(20), k.TxnSafe, "held back")
	k.setBarrier("backup", 0, 0)
	require.NoError(t, k.moveTxnSafe(30, math.MaxInt64))
	require.Equal(t, uint64(30), k.TxnSafe)
}
