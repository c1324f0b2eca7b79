package kvtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/services/internal/kv"
)

// noLeak fails the test if fn leaves goroutines behind.
func noLeak(t *testing.T, f Factory, fn func()) {
	opts := append(slices.Clone(f.Leaks), goleak.IgnoreCurrent())
	fn()
	goleak.VerifyNone(t, opts...)
}

func testCancelledBefore(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	dead, cancel := context.WithCancel(ctx)
	cancel()
	noLeak(t, f, func() {
		_, err := write(dead, s, kv.UpdateOptions{}, "a", "2")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, s.View(dead, func(r kv.Reader) error {
			_, err := r.Get(dead, b("a"))
			return err
		}), context.Canceled)
		_, err = s.Now(dead)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, s.DropRange(dead, kv.Range{}), context.Canceled)
	})
	require.Equal(t, map[string]string{"a": "1"}, dump(ctx, t, s))
}

// A context that ends within the closure ends its reads and keeps the commit from happening.
func testCancelledInside(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	noLeak(t, f, func() {
		dying, cancel := context.WithCancel(ctx)
		_, err := s.Update(dying, kv.UpdateOptions{}, func(tx kv.Txn) error {
			require.NoError(t, tx.Put(b("a"), b("2")))
			cancel()
			_, err := tx.Get(dying, b("b"))
			require.ErrorIs(t, err, context.Canceled)
			_, err = tx.BatchGet(dying, [][]byte{b("b")})
			require.ErrorIs(t, err, context.Canceled)
			_, err = tx.Scan(dying, kv.Scan{Limit: 1})
			require.ErrorIs(t, err, context.Canceled)
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)

		late, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		_, err = s.Update(late, kv.UpdateOptions{}, func(tx kv.Txn) error {
			<-late.Done()
			return tx.Put(b("a"), b("3"))
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	require.Equal(t, map[string]string{"a": "1"}, dump(ctx, t, s))
	require.NoError(t, run(ctx, s, lockStep("a")), "nothing stays locked")
}

// A context may end at any moment, also between commit and answer. The answer must then be honest.
func testCancelledAnywhere(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "warm", "x")
	noLeak(t, f, func() {
		for i := range 100 {
			key := fmt.Sprintf("k%03d", i)
			err := cancelledUpdate(ctx, s, key, i)
			var found bool
			// Only a transaction that locks the key decides what is undetermined, be it by losing against it at first.
			_, settled := kv.Retry(ctx, s, kv.UpdateOptions{}, 10, func(tx kv.Txn) error {
				_, err := tx.Get(ctx, b(key))
				found = err == nil
				return tx.Lock(ctx, b(key))
			})
			require.NoError(t, settled)
			switch {
			case err == nil:
				require.True(t, found, "%s was answered as committed", key)
			case !errors.Is(err, kv.ErrUndetermined):
				require.ErrorIs(t, err, context.Canceled)
				require.False(t, found, "%s was answered as not committed: %v", key, err)
			}
		}
	})
}

func cancelledUpdate(ctx context.Context, s kv.Store, key string, yields int) error {
	dying, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := s.Update(dying, kv.UpdateOptions{}, func(tx kv.Txn) error {
		go func() {
			for range yields {
				runtime.Gosched()
			}
			cancel()
		}()
		return tx.Put(b(key), b("x"))
	})
	return err
}

func testClosed(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	require.NoError(t, s.Close())
	requireClosed(ctx, t, s)
}

func requireClosed(ctx context.Context, t *testing.T, s kv.Store) {
	_, err := write(ctx, s, kv.UpdateOptions{}, "a", "2")
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, s.View(ctx, func(r kv.Reader) error {
		_, err := r.Get(ctx, b("a"))
		return err
	}), kv.ErrUnavailable)
	_, err = s.Now(ctx)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, s.DropRange(ctx, kv.Range{}), kv.ErrUnavailable)
}

// Close does not wait for closures: they learn of it by their next call.
func testCloseUnder(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("b"), b("1")))
		return s.View(ctx, func(r kv.Reader) error {
			require.NoError(t, s.Close())
			_, err := r.Get(ctx, b("a"))
			require.ErrorIs(t, err, kv.ErrUnavailable)
			_, err = tx.BatchGet(ctx, [][]byte{b("a")})
			require.ErrorIs(t, err, kv.ErrUnavailable)
			_, err = tx.Scan(ctx, kv.Scan{Limit: 1})
			require.ErrorIs(t, err, kv.ErrUnavailable)
			return nil
		})
	})
	require.ErrorIs(t, err, kv.ErrUnavailable)
	requireClosed(ctx, t, s)
}

func testDoubts(t *testing.T, f Factory) {
	for name, doubt := range f.Doubts {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			s, arm := doubt.Open(t)
			closing(t, s)
			put(ctx, t, s, "a", "old")
			faulty, end := arm(ctx)
			end = sync.OnceFunc(end)
			t.Cleanup(end)
			_, err := write(faulty, s, kv.UpdateOptions{}, "a", "new", "b", "new")
			require.ErrorIs(t, err, kv.ErrUndetermined)
			require.NotErrorIs(t, err, kv.ErrConflict)
			end()
			want := map[string]string{"a": "old"}
			if doubt.Landed {
				want = map[string]string{"a": "new", "b": "new"}
			}
			require.NoError(t, run(ctx, s, lockStep("a", "b")), "who locks the keys makes the answer final")
			require.Equal(t, want, dump(ctx, t, s))
		})
	}
}

func testOutage(t *testing.T, f Factory) {
	ctx := bounded(t)
	s, begin, end := f.Outage(t)
	closing(t, s)
	end = sync.OnceFunc(end)
	t.Cleanup(end)
	put(ctx, t, s, "a", "1")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("a"), b("2")))
		begin()
		return nil
	})
	inside := err
	require.True(t, errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrUndetermined), "%v", err)
	_, err = write(ctx, s, kv.UpdateOptions{}, "b", "1")
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, s.View(ctx, func(r kv.Reader) error {
		_, err := r.Get(ctx, b("a"))
		return err
	}), kv.ErrUnavailable)
	_, err = s.Now(ctx)
	require.ErrorIs(t, err, kv.ErrUnavailable)
	end()
	put(ctx, t, s, "c", "1")
	got := dump(ctx, t, s)
	if errors.Is(inside, kv.ErrUnavailable) {
		require.Equal(t, "1", got["a"])
	}
	delete(got, "a")
	require.Equal(t, map[string]string{"c": "1"}, got)
}
