package kvtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
)

func testGet(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	require.NoError(t, s.View(ctx, func(r kv.Reader) error {
		v, err := r.Get(ctx, b("a"))
		require.NoError(t, err)
		require.Equal(t, "1", string(v))
		_, err = r.Get(ctx, b("aa"))
		require.ErrorIs(t, err, kv.ErrNotFound)
		return nil
	}))
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { return tx.Delete(b("a")) })
	require.NoError(t, err)
	require.ErrorIs(t, s.View(ctx, func(r kv.Reader) error {
		_, err := r.Get(ctx, b("a"))
		return err
	}), kv.ErrNotFound)
}

func testBatchGet(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1", "b", "2", "c", "3")
	dropped := errors.New("dropped")
	for _, times := range []int{1, 10, 100} { // a driver may look few keys up in another way than many
		keys := slices.Repeat([][]byte{b("c"), b("missing"), b("a"), b("c"), b("d"), b("b")}, times)
		_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
			require.NoError(t, tx.Put(b("d"), b("own")))
			require.NoError(t, tx.Delete(b("b")))
			got, err := tx.BatchGet(ctx, keys)
			require.NoError(t, err)
			require.Equal(t, slices.Repeat([][]byte{b("3"), nil, b("1"), b("3"), b("own"), nil}, times), got)
			return dropped
		})
		require.ErrorIs(t, err, dropped)
		require.NoError(t, s.View(ctx, func(r kv.Reader) error {
			got, err := r.BatchGet(ctx, keys)
			require.NoError(t, err)
			require.Equal(t, slices.Repeat([][]byte{b("3"), nil, b("1"), b("3"), nil, b("2")}, times), got)
			return nil
		}))
	}
	require.NoError(t, s.View(ctx, func(r kv.Reader) error {
		got, err := r.BatchGet(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, got)
		return nil
	}))
}

func testOwnWrites(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "old", "1", "gone", "1")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("new"), b("x")))
		require.NoError(t, tx.Put(b("old"), b("2")))
		require.NoError(t, tx.Put(b("old"), b("3")))
		require.NoError(t, tx.Delete(b("gone")))
		require.NoError(t, tx.Put(b("brief"), b("x")))
		require.NoError(t, tx.Delete(b("brief")))
		for key, want := range map[string]string{"new": "x", "old": "3"} {
			v, err := tx.Get(ctx, b(key))
			require.NoError(t, err)
			require.Equal(t, want, string(v))
		}
		for _, key := range []string{"gone", "brief"} {
			_, err := tx.Get(ctx, b(key))
			require.ErrorIs(t, err, kv.ErrNotFound)
		}
		require.Equal(t, map[string]string{"old": "1", "gone": "1"}, dump(ctx, t, s), "seen before the commit")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"old": "3", "new": "x"}, dump(ctx, t, s))
}

// testRewrites: the last of many writes of a key counts, among many others.
func testRewrites(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	want := map[string]string{}
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		for i := range 2000 {
			key, value := fmt.Sprintf("k%03d", i*7919%200), fmt.Sprint(i)
			want[key] = value
			require.NoError(t, tx.Put(b(key), b(value)))
			if i%3 == 0 {
				delete(want, key)
				require.NoError(t, tx.Delete(b(key)))
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want, dump(ctx, t, s))
}

// A caller may do as it likes with what it was given, also with the value of an own write.
func testOwnership(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "kept")
	scribble := func(r kv.Reader, key string) {
		for range 2 {
			one, err := r.Get(ctx, b(key))
			require.NoError(t, err)
			many, err := r.BatchGet(ctx, [][]byte{b(key)})
			require.NoError(t, err)
			pairs, err := r.Scan(ctx, kv.Scan{Range: kv.Range{From: b(key)}, Limit: 1})
			require.NoError(t, err)
			require.Equal(t, key, string(pairs[0].Key))
			for _, v := range [][]byte{one, many[0], pairs[0].Value} {
				require.Equal(t, "kept", string(v))
				v[0] = '!'
			}
			pairs[0].Key[0] = '!'
		}
	}
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("own"), b("kept")))
		scribble(tx, "own")
		scribble(tx, "a")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "kept", "own": "kept"}, dump(ctx, t, s))
}

func testEmptyValue(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.Error(t, tx.Put(b("a"), nil))
		require.Error(t, tx.Put(b("a"), []byte{}))
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, dump(ctx, t, s))
}

func testClosureError(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	own := errors.New("the closure's own")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("a"), b("1")))
		return own
	})
	require.ErrorIs(t, err, own)
	require.ErrorIs(t, s.View(ctx, func(kv.Reader) error { return own }), own)
	require.Empty(t, dump(ctx, t, s))
}

func testSnapshot(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1", "b", "1")
	read := func(r kv.Reader) {
		got, err := r.BatchGet(ctx, [][]byte{b("a"), b("b"), b("c")})
		require.NoError(t, err)
		require.Equal(t, [][]byte{b("1"), b("1"), nil}, got)
		pairs, err := r.Scan(ctx, kv.Scan{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "1", "b": "1"}, asMap(pairs))
	}
	for name, snapshot := range map[string]func(func(kv.Reader)) error{
		"view": func(fn func(kv.Reader)) error {
			return s.View(ctx, func(r kv.Reader) error { fn(r); return nil })
		},
		"update": func(fn func(kv.Reader)) error {
			_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { fn(tx); return nil })
			return err
		},
	} {
		put(ctx, t, s, "a", "1", "b", "1")
		_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { return tx.Delete(b("c")) })
		require.NoError(t, err)
		require.NoError(t, snapshot(func(r kv.Reader) {
			// The first read comes after the foreign commit: the snapshot dates from the start, not from its first use.
			committed := put(ctx, t, s, "a", "2", "c", "2")
			require.Greater(t, committed, r.Timestamp())
			read(r)
			read(r)
		}), name)
		require.Equal(t, map[string]string{"a": "2", "b": "1", "c": "2"}, dump(ctx, t, s), name)
	}
}

func testReadOnlyUpdate(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1")
	var start kv.Timestamp
	ts, err := s.Update(ctx, kv.UpdateOptions{Bound: time.Minute}, func(tx kv.Txn) error {
		start = tx.Timestamp()
		put(ctx, t, s, "a", "2")
		_, err := tx.Get(ctx, b("a"))
		return err
	})
	require.NoError(t, err)
	require.Equal(t, start, ts)
}

func testNow(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	var last kv.Timestamp
	for i := range 50 {
		before, err := s.Now(ctx)
		require.NoError(t, err)
		require.Greater(t, before, last)
		require.NoError(t, s.View(ctx, func(r kv.Reader) error {
			require.Greater(t, r.Timestamp(), before)
			last = r.Timestamp()
			return nil
		}))
		committed := put(ctx, t, s, fmt.Sprint(i), "x")
		require.Greater(t, committed, last)
		after, err := s.Now(ctx)
		require.NoError(t, err)
		require.Greater(t, after, committed)
		last = after
	}
	require.InDelta(t, time.Now().UnixMilli(), last.Millis(), float64(time.Minute.Milliseconds()))
}

func testDropRange(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1", "b", "1", "b\x00", "1", "bz", "1", "c", "1", "z", "1")
	require.NoError(t, s.DropRange(ctx, kv.Range{From: b("b"), To: b("c")}))
	require.Equal(t, map[string]string{"a": "1", "c": "1", "z": "1"}, dump(ctx, t, s))
	require.NoError(t, s.DropRange(ctx, kv.Range{From: b("b"), To: b("c")}))
	put(ctx, t, s, "b", "2")
	require.NoError(t, s.DropRange(ctx, kv.Range{From: b("c")}))
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, dump(ctx, t, s))
	require.NoError(t, s.DropRange(ctx, kv.Range{From: b("b"), To: b("a")}), "an inverted range is empty")
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, dump(ctx, t, s))
}

func testLargeBatch(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	const n = 5000
	keys := make([][]byte, n)
	value := b(strings.Repeat("v", 100))
	_, err := s.Update(ctx, kv.UpdateOptions{Bound: time.Minute}, func(tx kv.Txn) error {
		for i := range keys {
			keys[i] = fmt.Appendf(nil, "key/%06d", i)
			require.NoError(t, tx.Put(keys[i], value))
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, s.View(ctx, func(r kv.Reader) error {
		got, err := r.BatchGet(ctx, keys)
		require.NoError(t, err)
		require.Len(t, got, n)
		for i, v := range got {
			require.Equal(t, string(value), string(v), "key %s", keys[i])
		}
		return nil
	}))
	_, err = s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		for _, k := range keys {
			require.NoError(t, tx.Delete(k))
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, dump(ctx, t, s))
}

func testLargeValues(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	sizes := []int{1, 1 << 10, 1<<20 - 1, 1 << 20, 1 << 20, 1 << 20}
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		for i, size := range sizes {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%d", i), b(strings.Repeat(fmt.Sprint(i), size))))
		}
		return nil
	})
	require.NoError(t, err)
	got := dump(ctx, t, s)
	require.Len(t, got, len(sizes))
	for i, size := range sizes {
		require.True(t, strings.Repeat(fmt.Sprint(i), size) == got[fmt.Sprint(i)], "value %d of %d bytes", i, size)
	}
}

func testTooLarge(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("small"), b("1")))
		return tx.Put(b("huge"), make([]byte, f.MaxEntry))
	})
	require.ErrorIs(t, err, kv.ErrTooLarge)
	require.Empty(t, dump(ctx, t, s))
}
