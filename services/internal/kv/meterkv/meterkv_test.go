package meterkv_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/kvtest"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/kv/meterkv"
)

func TestConformance(t *testing.T) {
	disk, bare := "durability is that of the store inside", "it changes nothing about a call"
	kvtest.Run(t, kvtest.Factory{
		Open: func(t testing.TB) kv.Store {
			port, err := local.OpenMem(zap.NewNop())
			require.NoError(t, err)
			return meterkv.New(port, func([]byte) string { return "any" }, func(string) {})
		},
		MaxEntry:   6 << 20,
		Exceptions: map[string]string{"OpenAt": disk, "Disk": disk, "Doubts": bare, "Outage": bare, "Stalls": bare},
	})
}

func TestEachCallCountsOnceUnderItsFirstKey(t *testing.T) {
	port, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	counts := map[string]int{}
	m := meterkv.New(port, func(k []byte) string { return string(k[:1]) }, func(class string) { counts[class]++ })
	defer func() { require.NoError(t, m.Close()) }()
	ctx := context.Background()
	_, err = m.Update(ctx, kv.UpdateOptions{}, func(t kv.Txn) error {
		if err := t.Put([]byte("a1"), []byte("x")); err != nil {
			return err
		}
		return t.Delete([]byte("b1"))
	})
	require.NoError(t, err)
	require.NoError(t, m.View(ctx, func(r kv.Reader) error {
		_, err := r.Scan(ctx, kv.Scan{Range: kv.Range{From: []byte("c")}, Limit: 1})
		return err
	}))
	_, err = m.Now(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a": 1, "c": 1, meterkv.Clock: 1}, counts)
}
