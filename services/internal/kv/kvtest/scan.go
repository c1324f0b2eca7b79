package kvtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"ankusa.dev/services/internal/kv"
)

func testScan(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "1", "b", "2", "b\x00", "3", "b\xff", "4", "c", "5", "\xff\xff", "6")
	for _, c := range []struct {
		name     string
		from, to string
		limit    int
		reverse  bool
		want     []string
	}{
		{"all", "", "", 100, false, []string{"a", "b", "b\x00", "b\xff", "c", "\xff\xff"}},
		{"all reverse", "", "", 100, true, []string{"\xff\xff", "c", "b\xff", "b\x00", "b", "a"}},
		{"limit", "", "", 2, false, []string{"a", "b"}},
		{"limit reverse", "", "", 2, true, []string{"\xff\xff", "c"}},
		{"limit is exact", "", "", 6, false, []string{"a", "b", "b\x00", "b\xff", "c", "\xff\xff"}},
		{"from is inside", "b", "", 2, false, []string{"b", "b\x00"}},
		{"to is outside", "", "b", 10, false, []string{"a"}},
		{"to is outside reverse", "", "b\x00", 10, true, []string{"b", "a"}},
		{"from is inside reverse", "b\x00", "c", 10, true, []string{"b\xff", "b\x00"}},
		{"limit before from reverse", "a", "c", 3, true, []string{"b\xff", "b\x00", "b"}},
		{"bounds that are no keys", "aa", "bz", 10, false, []string{"b", "b\x00"}},
		{"bounds that are no keys reverse", "aa", "bz", 10, true, []string{"b\x00", "b"}},
		{"empty", "b", "b", 10, false, nil},
		{"inverted", "c", "a", 10, false, nil},
		{"inverted reverse", "c", "a", 10, true, nil},
		{"nothing there", "d", "e", 10, false, nil},
		{"nothing there reverse", "d", "e", 10, true, nil},
		{"nothing below reverse", "", "a", 10, true, nil},
	} {
		for _, keyOnly := range []bool{false, true} {
			require.NoError(t, s.View(ctx, func(r kv.Reader) error {
				got, err := r.Scan(ctx, kv.Scan{Range: kv.Range{From: b(c.from), To: b(c.to)}, Limit: c.limit,
					Reverse: c.reverse, KeyOnly: keyOnly})
				require.NoError(t, err)
				require.Equal(t, c.want, keysOf(got), c.name)
				for _, p := range got {
					require.Equal(t, keyOnly, p.Value == nil, "%s: value of %q", c.name, p.Key)
				}
				return nil
			}))
		}
	}
}

func keysOf(pairs []kv.Pair) (keys []string) {
	for _, p := range pairs {
		keys = append(keys, string(p.Key))
	}
	return keys
}

func testScanLimit(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	for _, limit := range []int{0, -1} {
		require.NoError(t, s.View(ctx, func(r kv.Reader) error {
			_, err := r.Scan(ctx, kv.Scan{Limit: limit})
			require.Error(t, err)
			return nil
		}))
	}
}

func testScanMerge(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "b", "old", "d", "old", "f", "old", "h", "old")
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, putAll(tx, []string{"a", "new", "d", "new", "e", "new", "i", "new"}))
		require.NoError(t, tx.Delete(b("b")))
		require.NoError(t, tx.Delete(b("h")))
		require.NoError(t, tx.Delete(b("never")))
		for _, c := range []struct {
			scan kv.Scan
			want []string
		}{
			{kv.Scan{Limit: 10}, []string{"a", "d", "e", "f", "i"}},
			{kv.Scan{Limit: 3}, []string{"a", "d", "e"}},
			{kv.Scan{Limit: 10, Reverse: true}, []string{"i", "f", "e", "d", "a"}},
			{kv.Scan{Limit: 2, Reverse: true}, []string{"i", "f"}},
			{kv.Scan{Limit: 10, Range: kv.Range{From: b("b"), To: b("f")}}, []string{"d", "e"}},
			{kv.Scan{Limit: 10, Range: kv.Range{From: b("b"), To: b("f")}, Reverse: true}, []string{"e", "d"}},
		} {
			got, err := tx.Scan(ctx, c.scan)
			require.NoError(t, err)
			require.Equal(t, c.want, keysOf(got), "%+v", c.scan)
		}
		got, err := tx.Scan(ctx, kv.Scan{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "new", "d": "new", "e": "new", "f": "old", "i": "new"}, asMap(got))
		return nil
	})
	require.NoError(t, err)
}

// A scan is longer than any page that a driver reads it in.
func testScanLong(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	const n, limit = 3000, 2500
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		for i := range n {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%05d", i), b("x")))
		}
		return nil
	})
	require.NoError(t, err)
	for _, reverse := range []bool{false, true} {
		require.NoError(t, s.View(ctx, func(r kv.Reader) error {
			got, err := r.Scan(ctx, kv.Scan{Limit: limit, Reverse: reverse})
			require.NoError(t, err)
			require.Len(t, got, limit)
			for i, p := range got {
				want := i
				if reverse {
					want = n - 1 - i
				}
				require.Equal(t, fmt.Sprintf("%05d", want), string(p.Key))
			}
			return nil
		}))
	}
}

// Random committed and own writes, random scans, against a sorted map.
func testScanModel(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	key := rapid.StringOfN(rapid.RuneFrom([]rune("ab\x00")), 1, 3, -1)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		prefix := fmt.Sprintf("%06d/", round)
		model := map[string]string{}
		change := func(tx kv.Txn) {
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				k := prefix + key.Draw(rt, "key")
				if rapid.Bool().Draw(rt, "delete") {
					require.NoError(rt, tx.Delete(b(k)))
					delete(model, k)
					continue
				}
				model[k] = rapid.StringN(1, 3, -1).Draw(rt, "value")
				require.NoError(rt, tx.Put(b(k), b(model[k])))
			}
		}
		_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { change(tx); return nil })
		require.NoError(rt, err)
		_, err = s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
			change(tx)
			scan := kv.Scan{
				Range:   kv.Range{From: b(prefix + key.Draw(rt, "from")), To: b(prefix + key.Draw(rt, "to"))},
				Limit:   rapid.IntRange(1, 6).Draw(rt, "limit"),
				Reverse: rapid.Bool().Draw(rt, "reverse"),
			}
			got, err := tx.Scan(ctx, scan)
			require.NoError(rt, err)
			require.Empty(rt, cmp.Diff(modelScan(model, scan), got, cmpopts.EquateEmpty()))
			return nil
		})
		require.NoError(rt, err)
	})
}

func modelScan(model map[string]string, s kv.Scan) []kv.Pair {
	var keys []string
	for k := range model {
		if k >= string(s.From) && k < string(s.To) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if s.Reverse {
		slices.Reverse(keys)
	}
	var pairs []kv.Pair
	for _, k := range keys[:min(len(keys), s.Limit)] {
		pairs = append(pairs, kv.Pair{Key: b(k), Value: b(model[k])})
	}
	return pairs
}
