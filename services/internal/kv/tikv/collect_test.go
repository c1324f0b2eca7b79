package tikv_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
	"ankusa.dev/services/internal/kv/tikv/tikvmock"
)

func quickly(c *tikv.Config) { c.GC.Settle = 10 * time.Millisecond }

// versions commits one key three times, and returns a timestamp after each.
func versions(ctx context.Context, t *testing.T, s kv.Store) (after []kv.Timestamp) {
	for range 3 {
		ts, err := put(ctx, s, kv.UpdateOptions{}, "key", "value")
		require.NoError(t, err)
		after = append(after, ts)
	}
	return after
}

func requireExisted(ctx context.Context, t *testing.T, s kv.Store, at kv.Timestamp, want bool) {
	t.Helper()
	got, err := tikv.ExistedAt(ctx, s, at, "key")
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCollectRemovesWhatNoSnapshotSees(t *testing.T) {
	ctx := within(t, time.Minute)
	s := connect(t, serve(t, tikvmock.Config{}), quickly)
	after := versions(ctx, t, s)
	c := s.(kv.Collector)
	for range 2 { // again is no error
		got, err := c.Collect(ctx, after[1])
		require.NoError(t, err)
		require.Equal(t, after[1], got)
	}
	requireExisted(ctx, t, s, after[0], false)
	requireExisted(ctx, t, s, after[1], true)
	requireExisted(ctx, t, s, after[2], true)
	got, err := c.Collect(ctx, after[0])
	require.NoError(t, err, "a point that is past already")
	require.Equal(t, after[0], got)
}

func TestCollectStopsWhereOthersHoldBack(t *testing.T) {
	ctx := within(t, time.Minute)
	s := connect(t, serve(t, tikvmock.Config{}), quickly)
	after := versions(ctx, t, s)
	require.NoError(t, tikv.HoldBack(ctx, s, after[0]))
	got, err := s.(kv.Collector).Collect(ctx, after[2])
	require.NoError(t, err)
	require.Equal(t, after[0], got)
	requireExisted(ctx, t, s, after[0], true)
}

// A lock below the safe point belongs to a transaction whose fate must be settled while it can still be known.
func TestCollectResolvesLocks(t *testing.T) {
	ctx := within(t, time.Minute)
	s, arm := lose("Commit", false)(t)
	faulty, end := arm(ctx)
	_, err := put(faulty, s, kv.UpdateOptions{Bound: time.Minute}, "key", "value")
	require.ErrorIs(t, err, kv.ErrUndetermined)
	end()
	now, err := s.Now(ctx)
	require.NoError(t, err)
	got, err := s.(kv.Collector).Collect(ctx, now)
	require.NoError(t, err)
	require.Equal(t, now, got)
	began := time.Now()
	_, err = put(ctx, s, kv.UpdateOptions{}, "key", "value")
	require.NoError(t, err)
	require.Less(t, time.Since(began), 2*time.Second, "the lock is gone, not waited for")
}

func TestCollectWaitsForTheOtherClients(t *testing.T) {
	s := connect(t, serve(t, tikvmock.Config{}))
	after := versions(within(t, time.Minute), t, s)
	_, err := s.(kv.Collector).Collect(within(t, 300*time.Millisecond), after[2])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireExisted(within(t, time.Minute), t, s, after[0], true)
}

func TestCollectIsOffWhereOthersDoIt(t *testing.T) {
	s := connect(t, serve(t, tikvmock.Config{}), func(c *tikv.Config) { c.GC.Enabled = false })
	_, collects := s.(kv.Collector)
	require.False(t, collects)
}
