package kvtest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
)

type step func(context.Context, kv.Txn) error

func putStep(key string) step {
	return func(_ context.Context, tx kv.Txn) error { return tx.Put(b(key), b(key)) }
}

func deleteStep(key string) step {
	return func(_ context.Context, tx kv.Txn) error { return tx.Delete(b(key)) }
}

func lockStep(keys ...string) step {
	return func(ctx context.Context, tx kv.Txn) error {
		for _, k := range keys {
			if err := tx.Lock(ctx, b(k)); err != nil {
				return err
			}
		}
		return nil
	}
}

func readStep(keys ...string) step {
	return func(ctx context.Context, tx kv.Txn) error {
		for _, k := range keys {
			if _, err := tx.Get(ctx, b(k)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		return nil
	}
}

func scanStep(from, to string, want int) step {
	return func(ctx context.Context, tx kv.Txn) error {
		got, err := tx.Scan(ctx, kv.Scan{Range: kv.Range{From: b(from), To: b(to)}, Limit: 100})
		if err == nil && len(got) != want {
			return fmt.Errorf("scan saw %d keys, not %d", len(got), want)
		}
		return err
	}
}

func run(ctx context.Context, s kv.Store, steps ...step) error {
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		return runSteps(ctx, tx, steps)
	})
	return err
}

func runSteps(ctx context.Context, tx kv.Txn, steps []step) error {
	for _, st := range steps {
		if err := st(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// overlap runs outer, commits inner while outer is open, and returns what outer's commit says.
func overlap(ctx context.Context, t testing.TB, s kv.Store, outer, inner []step) error {
	t.Helper()
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		if err := runSteps(ctx, tx, outer); err != nil {
			return err
		}
		require.NoError(t, run(ctx, s, inner...), "the inner transaction commits first and undisturbed")
		return nil
	})
	return err
}

func testConflict(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	for _, existing := range []bool{true, false} {
		for outerName, outer := range map[string]step{"put": putStep("k"), "delete": deleteStep("k"), "lock": lockStep("k")} {
			for innerName, inner := range map[string]step{"put": putStep("k"), "delete": deleteStep("k"), "lock": lockStep("k")} {
				setUp := deleteStep("k")
				if existing {
					setUp = putStep("k")
				}
				require.NoError(t, run(ctx, s, setUp))
				name := fmt.Sprintf("%s under %s, existing %t", innerName, outerName, existing)
				err := overlap(ctx, t, s, []step{outer, putStep("beside")}, []step{inner})
				require.ErrorIs(t, err, kv.ErrConflict, name)
				require.NotContains(t, dump(ctx, t, s), "beside", name)
			}
		}
	}
}

func testConflictKey(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	err := overlap(ctx, t, s,
		[]step{putStep("a"), putStep("b"), lockStep("c"), deleteStep("d"), putStep("e")},
		[]step{putStep("0"), putStep("b"), putStep("c"), putStep("d"), putStep("z")})
	var conflict *kv.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.ErrorIs(t, err, kv.ErrConflict)
	require.Contains(t, []string{"b", "c", "d"}, string(conflict.Key))
}

func testNoConflict(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	require.NoError(t, run(ctx, s, putStep("a"), putStep("b")))
	require.NoError(t, overlap(ctx, t, s, []step{putStep("a")}, []step{putStep("b")}), "neighbours")
	require.NoError(t, overlap(ctx, t, s, []step{readStep("a"), putStep("c")}, []step{putStep("a")}), "a key only read")
	require.NoError(t, overlap(ctx, t, s, []step{putStep("a")}, []step{readStep("a"), putStep("c")}), "a key only read")
	require.NoError(t, overlap(ctx, t, s, []step{putStep("a")}, []step{readStep("a")}), "a reader")
	for range 10 {
		require.NoError(t, run(ctx, s, putStep("a"), lockStep("b")), "one after the other")
	}
}

func testFailedIsInvisible(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	own := errors.New("given up")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(outer kv.Txn) error {
		require.NoError(t, outer.Put(b("a"), b("1")))
		require.NoError(t, outer.Put(b("b"), b("1")))
		_, err := s.Update(ctx, kv.UpdateOptions{}, func(inner kv.Txn) error {
			require.NoError(t, inner.Put(b("a"), b("2")))
			require.NoError(t, inner.Lock(ctx, b("b")))
			return own
		})
		require.ErrorIs(t, err, own)
		err = overlap(ctx, t, s, []step{putStep("b"), putStep("other")}, []step{putStep("other")})
		require.ErrorIs(t, err, kv.ErrConflict)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "1", "other": "other"}, dump(ctx, t, s))
}

func testWriteSkew(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	require.NoError(t, run(ctx, s, putStep("a"), putStep("b")))
	require.NoError(t, overlap(ctx, t, s,
		[]step{readStep("a", "b"), deleteStep("a")},
		[]step{readStep("a", "b"), deleteStep("b")}))
	require.Empty(t, dump(ctx, t, s), "both decided that the other stays")
}

func testPhantom(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	require.NoError(t, overlap(ctx, t, s,
		[]step{scanStep("r/", "r0", 0), putStep("r/1")},
		[]step{scanStep("r/", "r0", 0), putStep("r/2")}))
	require.Len(t, dump(ctx, t, s), 2, "both decided that they are the first")
}

func testLockSkew(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	require.NoError(t, run(ctx, s, putStep("a"), putStep("b")))
	err := overlap(ctx, t, s,
		[]step{lockStep("b"), readStep("a", "b"), deleteStep("a")},
		[]step{lockStep("a"), readStep("a", "b"), deleteStep("b")})
	require.ErrorIs(t, err, kv.ErrConflict)
	require.Equal(t, map[string]string{"a": "a"}, dump(ctx, t, s))
}

// A key that stands for the range and that every writer into it locks makes the phantom a conflict.
func testLockPhantom(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	err := overlap(ctx, t, s,
		[]step{lockStep("r"), scanStep("r/", "r0", 0), putStep("r/1")},
		[]step{lockStep("r"), scanStep("r/", "r0", 0), putStep("r/2")})
	require.ErrorIs(t, err, kv.ErrConflict)
	require.Equal(t, map[string]string{"r/2": "r/2"}, dump(ctx, t, s))
}

func testLockValue(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	require.NoError(t, run(ctx, s, putStep("kept"), putStep("deleted")))
	var start kv.Timestamp
	ts, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		start = tx.Timestamp()
		return tx.Lock(ctx, b("kept"), b("absent"))
	})
	require.NoError(t, err)
	require.Greater(t, ts, start, "a lock is committed")
	require.Equal(t, map[string]string{"kept": "kept", "deleted": "deleted"}, dump(ctx, t, s))

	require.NoError(t, run(ctx, s, putStep("put then lock"), lockStep("put then lock"),
		lockStep("lock then put"), putStep("lock then put"), deleteStep("deleted"), lockStep("deleted")))
	require.Equal(t, map[string]string{"kept": "kept", "put then lock": "put then lock",
		"lock then put": "lock then put"}, dump(ctx, t, s), "a lock takes nothing back")
	require.NoError(t, run(ctx, s, func(ctx context.Context, tx kv.Txn) error { return tx.Lock(ctx) }))
}

func testCounter(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	const workers, rounds = 8, 20
	var wg sync.WaitGroup
	errs := make(chan error, workers*rounds)
	for range workers {
		wg.Go(func() {
			for range rounds {
				_, err := kv.Retry(ctx, s, kv.UpdateOptions{}, 1000, increment(ctx))
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, map[string]string{"n": strconv.Itoa(workers * rounds)}, dump(ctx, t, s))
}

func increment(ctx context.Context) func(kv.Txn) error {
	return func(tx kv.Txn) error {
		v, err := tx.Get(ctx, b("n"))
		if err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
		n, _ := strconv.Atoi(string(v))
		return tx.Put(b("n"), b(strconv.Itoa(n+1)))
	}
}
