package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/kv/meterkv"
)

// splitter is a store that can split.
type splitter struct {
	kv.Store
	split func(ctx context.Context, keys [][]byte) error
}

func (s *splitter) Split(ctx context.Context, keys [][]byte) error { return s.split(ctx, keys) }

func splitting(t *testing.T, split func(context.Context, [][]byte) error) kv.Store {
	inner, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	return meterkv.New(&splitter{inner, split}, Class, func(string) {})
}

func TestANewClusterIsSplitAtThePartitionsOnce(t *testing.T) {
	var splits [][][]byte
	port := splitting(t, func(_ context.Context, keys [][]byte) error {
		splits = append(splits, keys)
		return nil
	})
	for range 2 {
		_, err := Open(t.Context(), port, Options{Partitions: 3})
		require.NoError(t, err)
	}
	require.Equal(t, [][][]byte{{{1}, {2}, {3}}}, splits, "with the first open alone")
	row := hook.Row{Partition: 2, Key: hook.SinkKey{Tenant: "acme"}}
	require.Equal(t, splits[0][2], rowKey(&row)[:1], "a border begins the keys of its partition")
}

func TestAClusterThatCannotBeSplitOpensAllTheSame(t *testing.T) {
	failure := errors.New("no such machine")
	port := splitting(t, func(context.Context, [][]byte) error { return failure })
	var told error
	s, err := Open(t.Context(), port, Options{Unsplit: func(err error) { told = err }})
	require.NoError(t, err)
	require.ErrorIs(t, told, failure)
	require.NoError(t, s.Ready(t.Context()))
	port = splitting(t, func(context.Context, [][]byte) error { return failure })
	_, err = Open(t.Context(), port, Options{})
	require.NoError(t, err, "nobody has to listen")
}

func TestL03_ASplitThatIsNotAnsweredIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := splitting(t, func(ctx context.Context, _ [][]byte) error {
			<-ctx.Done()
			return ctx.Err()
		})
		var told error
		_, err := Open(t.Context(), port, Options{Unsplit: func(err error) { told = err }})
		require.NoError(t, err)
		require.ErrorIs(t, told, context.DeadlineExceeded)
	})
}
