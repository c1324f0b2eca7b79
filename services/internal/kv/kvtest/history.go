package kvtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
)

const historyKeys = 12

// record is what one transaction did and saw.
type record struct {
	start, commit kv.Timestamp // commit is zero when it failed
	seen          []sighting
	puts          map[string]string // "" deletes
	touched       map[string]bool   // put, deleted or locked
}

type sighting struct {
	key, value string // "" is not found
}

// testHistory runs random transactions side by side and judges their history: everybody saw exactly what was committed
// up to his snapshot, and no two overlapping transactions committed one key.
func testHistory(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const workers, rounds = 8, 150
	var (
		mu      sync.Mutex
		history []record
		failure error
		wg      sync.WaitGroup
	)
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for i := range rounds {
				r, err := historyStep(ctx, s, rng, fmt.Sprintf("%d.%d", w, i))
				mu.Lock()
				history, failure = append(history, r), errors.Join(failure, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.NoError(t, failure)
	judgeConflicts(t, history)
	judgeReads(t, history)
}

func historyStep(ctx context.Context, s kv.Store, rng *rand.Rand, value string) (record, error) {
	r := record{puts: map[string]string{}, touched: map[string]bool{}}
	if rng.IntN(3) == 0 {
		return r, s.View(ctx, func(tx kv.Reader) error {
			r.start = tx.Timestamp()
			return r.read(ctx, tx, rng)
		})
	}
	ts, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		r.start = tx.Timestamp()
		if err := r.read(ctx, tx, rng); err != nil {
			return err
		}
		return r.write(ctx, tx, rng, value)
	})
	if errors.Is(err, kv.ErrConflict) {
		return r, nil
	}
	r.commit = ts
	return r, err
}

func historyKey(rng *rand.Rand) string { return fmt.Sprintf("k%02d", rng.IntN(historyKeys)) }

func (r *record) read(ctx context.Context, tx kv.Reader, rng *rand.Rand) error {
	for range rng.IntN(3) {
		key := historyKey(rng)
		v, err := tx.Get(ctx, b(key))
		if err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
		r.seen = append(r.seen, sighting{key, string(v)})
	}
	if rng.IntN(2) == 0 {
		return nil
	}
	all, err := tx.Scan(ctx, kv.Scan{Limit: 2 * historyKeys, Reverse: rng.IntN(2) == 0})
	found := asMap(all)
	for i := range historyKeys {
		key := fmt.Sprintf("k%02d", i)
		r.seen = append(r.seen, sighting{key, found[key]})
	}
	return err
}

func (r *record) write(ctx context.Context, tx kv.Txn, rng *rand.Rand, value string) error {
	var err error
	for range 1 + rng.IntN(2) {
		key := historyKey(rng)
		r.touched[key] = true
		switch rng.IntN(5) {
		case 0:
			r.puts[key] = ""
			err = errors.Join(err, tx.Delete(b(key)))
		case 1:
			err = errors.Join(err, tx.Lock(ctx, b(key)))
		default:
			r.puts[key] = value
			err = errors.Join(err, tx.Put(b(key), b(value)))
		}
	}
	return err
}

func judgeConflicts(t *testing.T, history []record) {
	for i, r := range history {
		if r.commit == 0 {
			continue
		}
		require.Greater(t, r.commit, r.start)
		for j, o := range history {
			if i == j || o.commit <= r.start || o.commit > r.commit {
				continue
			}
			for key := range o.touched {
				require.False(t, r.touched[key],
					"%s was committed at %d by a transaction of %d, and at %d within it", key, r.commit, r.start, o.commit)
			}
		}
	}
}

func judgeReads(t *testing.T, history []record) {
	slices.SortFunc(history, func(a, b record) int { return cmp.Compare(a.commit, b.commit) })
	for _, r := range history {
		for _, seen := range r.seen {
			if want := valueAt(history, seen.key, r.start); want != seen.value {
				require.Fail(t, "not the snapshot", "%s at %d is %q, seen was %q", seen.key, r.start, want, seen.value)
			}
		}
	}
}

// valueAt looks for the newest commit not above ts. The history is sorted by commit.
func valueAt(history []record, key string, ts kv.Timestamp) string {
	above, _ := slices.BinarySearchFunc(history, ts+1, func(r record, ts kv.Timestamp) int { return cmp.Compare(r.commit, ts) })
	for i := above - 1; i >= 0 && history[i].commit > 0; i-- {
		if v, ok := history[i].puts[key]; ok {
			return v
		}
	}
	return ""
}
