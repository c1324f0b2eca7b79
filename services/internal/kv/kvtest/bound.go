package kvtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
)

func testBoundHolds(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	for i := range 20 {
		var start kv.Timestamp
		ts, err := s.Update(ctx, kv.UpdateOptions{Bound: 5 * time.Second}, func(tx kv.Txn) error {
			start = tx.Timestamp()
			return tx.Put(fmt.Appendf(nil, "%d", i), b("x"))
		})
		require.NoError(t, err)
		require.Greater(t, ts, start)
		require.LessOrEqual(t, ts, start.Add(5*time.Second))
	}
	require.Len(t, dump(ctx, t, s), 20)
}

// A commit that starts late fails, writes nothing and leaves nothing behind that others would trip over.
func testBoundPassed(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	put(ctx, t, s, "a", "old")
	for name, st := range map[string]step{"put": putStep("a"), "delete": deleteStep("a"), "lock": lockStep("a")} {
		_, err := s.Update(ctx, kv.UpdateOptions{Bound: 20 * time.Millisecond}, func(tx kv.Txn) error {
			require.NoError(t, tx.Put(b("b"), b("new")))
			require.NoError(t, st(ctx, tx))
			return passClock(ctx, s, tx.Timestamp().Add(20*time.Millisecond))
		})
		require.ErrorIs(t, err, kv.ErrBound, name)
		require.Equal(t, map[string]string{"a": "old"}, dump(ctx, t, s), name)
		require.NoError(t, run(ctx, s, lockStep("a", "b")), name)
	}
	_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put(b("b"), b("new")))
		return passClock(ctx, s, tx.Timestamp().Add(20*time.Millisecond))
	})
	require.NoError(t, err, "without a bound any time is in time")
}

// testFinality lets writers with a bound stamp their rows with their start, some of them too late, and proves that what
// a snapshot shows below its timestamp less twice the bound never changes again.
func testFinality(t *testing.T, f Factory) {
	ctx, s := open(t, f)
	const bound = 50 * time.Millisecond
	w := stampers{s: s, bound: bound}
	stop, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { w.run(stop, i) })
	}
	seen := map[kv.Timestamp][]string{}
	defer wg.Wait()
	defer cancel()
	for len(seen) < 10 || w.inTime.Load() < 8 || w.late.Load() < 8 {
		require.Less(t, len(seen), 1000, "%d commits in time, %d late", w.inTime.Load(), w.late.Load())
		cutoff, keys := finalKeys(ctx, t, s, 0, bound)
		if cutoff == 0 { // nothing has been committed yet
			require.NoError(t, ctx.Err())
			continue
		}
		seen[cutoff] = keys
		require.NoError(t, passClock(ctx, s, cutoff.Add(2*bound+10*time.Millisecond)))
		require.NoError(t, ctx.Err())
	}
	cancel()
	wg.Wait()
	require.NoError(t, w.failure())
	for cutoff, before := range seen {
		_, after := finalKeys(ctx, t, s, cutoff, bound)
		require.Equal(t, before, after, "rows below %d", cutoff)
	}
}

// finalKeys reads the rows below the cutoff, or, if that is zero, below the snapshot less twice the bound.
func finalKeys(ctx context.Context, t *testing.T, s kv.Store, cutoff kv.Timestamp, bound time.Duration) (kv.Timestamp, []string) {
	var pairs []kv.Pair
	require.NoError(t, s.View(ctx, func(r kv.Reader) (err error) {
		if cutoff == 0 {
			cutoff = r.Timestamp().Add(-2 * bound)
		}
		pairs, err = r.Scan(ctx, kv.Scan{Range: kv.Range{To: fmt.Appendf(nil, "%020d", cutoff)}, Limit: 1 << 20})
		return err
	}))
	return cutoff, keysOf(pairs)
}

type stampers struct {
	s            kv.Store
	bound        time.Duration
	inTime, late atomic.Int64
	mu           sync.Mutex
	err          error
}

func (w *stampers) run(ctx context.Context, id int) {
	for i := 0; ctx.Err() == nil; i++ {
		_, err := w.s.Update(ctx, kv.UpdateOptions{Bound: w.bound}, func(tx kv.Txn) error {
			if err := tx.Put(fmt.Appendf(nil, "%020d/%d", tx.Timestamp(), id), b("x")); err != nil || i%4 == 0 {
				return err
			}
			return passClock(ctx, w.s, tx.Timestamp().Add(time.Duration(i%4)*w.bound/2))
		})
		switch {
		case err == nil:
			w.inTime.Add(1)
		case errors.Is(err, kv.ErrBound):
			w.late.Add(1)
		case ctx.Err() == nil:
			w.mu.Lock()
			w.err = errors.Join(w.err, err)
			w.mu.Unlock()
			return
		}
	}
}

func (w *stampers) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// testStalls holds a commit after its closure until its bound has passed: it must fail, and a reader that came by
// meanwhile must have been told the final truth.
func testStalls(t *testing.T, f Factory) {
	for name, open := range f.Stalls {
		t.Run(name, func(t *testing.T) {
			const bound = 500 * time.Millisecond // a busy machine must get as far as the stall within it
			ctx, stall := bounded(t), open(t)
			s := closing(t, stall.Store)
			put(ctx, t, s, "warm", "x")
			reached, release := stall.Hold()
			release = sync.OnceFunc(release)
			t.Cleanup(release) // a test that fails must not leave the commit behind
			done := make(chan error, 1)
			var start kv.Timestamp
			go func() {
				_, err := s.Update(ctx, kv.UpdateOptions{Bound: bound}, func(tx kv.Txn) error {
					start = tx.Timestamp()
					return putAll(tx, []string{"a", "1", "b", "1", "c", "1"})
				})
				done <- err
			}()
			select {
			case <-reached:
			case err := <-done:
				require.Fail(t, "the commit was not held", "%v", err)
			}
			require.NoError(t, passClock(ctx, s, start.Add(2*bound)))
			require.Equal(t, map[string]string{"warm": "x"}, dump(ctx, t, s), "while it is held")
			release()
			err := <-done
			require.Error(t, err)
			require.True(t, errors.Is(err, kv.ErrBound) || errors.Is(err, kv.ErrUndetermined), "%v", err)
			require.Equal(t, map[string]string{"warm": "x"}, dump(ctx, t, s), "after it was let go")
			require.NoError(t, run(ctx, s, lockStep("a", "b", "c")))
		})
	}
}
