package tikv_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
	"ankusa.dev/services/internal/kv/tikv/tikvmock"
)

// serve runs a mock until the test ends, and returns the address of its PD.
func serve(t testing.TB, c tikvmock.Config) string {
	t.Helper()
	s, err := tikvmock.Open(c)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return s.Addr()
}

func connect(t testing.TB, pd string, change ...func(*tikv.Config)) kv.Store {
	t.Helper()
	c := tikv.Default()
	c.PD = []string{pd}
	for _, f := range change {
		f(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := tikv.Open(ctx, c, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSmoke(t *testing.T) {
	s := connect(t, serve(t, tikvmock.Config{}))
	ctx := context.Background()
	for i, o := range []kv.UpdateOptions{{}, {Bound: 5 * time.Second}} {
		ts, err := s.Update(ctx, o, func(tx kv.Txn) error {
			return tx.Put([]byte{'a', byte(i)}, []byte("1"))
		})
		require.NoError(t, err)
		require.NotZero(t, ts)
		require.NoError(t, s.View(ctx, func(r kv.Reader) error {
			p, err := r.Scan(ctx, kv.Scan{Limit: 10})
			t.Log(p, err)
			p, err = r.Scan(ctx, kv.Scan{Limit: 10, Reverse: true})
			t.Log(p, err)
			return err
		}))
	}
}
