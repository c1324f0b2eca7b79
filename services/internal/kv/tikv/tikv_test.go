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
	warm(t, s)
	return s
}

// warm uses each of the connections that the client opens when it first needs them, so that a test which counts
// goroutines sees none that belong to the store.
func warm(t testing.TB, s kv.Store) {
	for i := range 16 {
		require.NoError(t, s.View(context.Background(), func(r kv.Reader) error {
			_, err := r.BatchGet(context.Background(), [][]byte{{byte(i)}})
			return err
		}))
	}
}
