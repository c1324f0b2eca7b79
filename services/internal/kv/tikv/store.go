// Package tikv is the key-value port on a TiKV cluster. Transactions are optimistic, under snapshot isolation.
package tikv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tikv/client-go/v2/oracle"
	client "github.com/tikv/client-go/v2/tikv"

	"ankusa.dev/services/internal/kv"
)

const (
	// MaxEntry is the most that a key and its value may measure together. A request of commitBatch bytes is filled up
	// with one more entry, and must stay below the 8 MiB that a Raft entry of TiKV may have.
	MaxEntry = 3 << 20
	// MaxTxn is the most that the keys and values of one transaction may measure. Above it the client would prolong
	// the transaction's locks for as long as it lives, and a lock has to expire.
	MaxTxn = 32 << 20

	commitBatch = 4 << 20
	// retries is how long, in milliseconds, the client may pause in all between its attempts at one thing. The store's
	// patience ends sooner.
	retries = 60_000
)

// Store is a kv.Store. It finds a cluster that was away again by itself.
type Store struct {
	space    space
	patience time.Duration
	client   *client.KVStore
	safe     *safePoint
	life     context.Context
	end      context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

var (
	_ kv.Store    = (*Store)(nil)
	_ kv.Splitter = (*Store)(nil)
)

// try is await for what a healthy cluster answers at once. Past the store's patience the cluster counts as away: the
// client's own retries add up to minutes.
func (s *Store) try(ctx context.Context, op string, fn func(context.Context) error) error {
	return s.await(ctx, op, func(inner context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(inner, s.patience)
	}, fn)
}

// long is await for what takes its time.
func (s *Store) long(ctx context.Context, op string, fn func(context.Context) error) error {
	return s.await(ctx, op, context.WithCancel, fn)
}

// await runs fn and returns its error, or returns early when its context or the store's life ends. The client heeds
// contexts nearly everywhere, and nearly is not enough for a caller with a deadline. fn may then go on for a while;
// Close waits for it.
func (s *Store) await(ctx context.Context, op string, limit func(context.Context) (context.Context, context.CancelFunc),
	fn func(context.Context) error) error {
	if ctx.Err() != nil {
		return s.failure(ctx, op, ctx.Err())
	}
	if !s.begin() {
		return errClosed
	}
	inner, cancel := limit(ctx)
	unlink := context.AfterFunc(s.life, cancel)
	done := make(chan error, 1)
	go func() {
		defer s.calls.Done()
		defer cancel()
		defer unlink()
		done <- fn(inner)
	}()
	select {
	case err := <-done:
		return s.failure(ctx, op, err)
	case <-inner.Done():
	}
	select {
	case err := <-done:
		return s.failure(ctx, op, err)
	default:
		return s.failure(ctx, op, errAbandoned)
	}
}

var errAbandoned = errors.New("no answer in time")

func (s *Store) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	ts, err := s.timestamp(ctx)
	if err != nil {
		return err
	}
	if err := fn(s.reader(ts, s.client.GetSnapshot(ts))); err != nil {
		return err
	}
	return s.open()
}

// open is an error when the store has been closed.
func (s *Store) open() error {
	if s.life.Err() != nil {
		return errClosed
	}
	return nil
}

// Now implements kv.Store. It takes the second of two timestamps, since a transaction that commits in one phase may
// choose the first one not yet handed out.
func (s *Store) Now(ctx context.Context) (kv.Timestamp, error) {
	if _, err := s.timestamp(ctx); err != nil {
		return 0, err
	}
	ts, err := s.timestamp(ctx)
	return kv.Timestamp(ts), err
}

func (s *Store) timestamp(ctx context.Context) (uint64, error) {
	var ts uint64 // not read unless the call came back in time
	err := s.try(ctx, "get timestamp", func(ctx context.Context) (err error) {
		ts, err = s.client.GetTimestampWithRetry(client.NewBackoffer(ctx, retries), oracle.GlobalTxnScope)
		return err
	})
	if err != nil {
		return 0, err
	}
	return ts, nil
}

// DropRange implements kv.Store. It is TiKV's replicated deletion, region by region, of all versions: slower than
// destroying the files on each node, but it leaves the replicas equal and asks nothing of the range's future.
func (s *Store) DropRange(ctx context.Context, r kv.Range) error {
	from, to := s.space.bounds(r)
	if bytes.Compare(from, to) >= 0 {
		return s.open()
	}
	return s.long(ctx, "drop range", func(ctx context.Context) error {
		_, err := s.client.DeleteRange(ctx, from, to, 1)
		return err
	})
}

// Split implements kv.Splitter. It makes each key the first of a region, where it is not, and asks PD to spread the new regions over the stores.
// It does not wait for the spreading.
func (s *Store) Split(ctx context.Context, keys [][]byte) error {
	at := s.space.keys(keys)
	return s.long(ctx, "split regions", func(ctx context.Context) error {
		_, err := s.client.SplitRegions(ctx, at, true, nil)
		return err
	})
}

// Close implements kv.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.end()
	s.calls.Wait()
	// It closes the safe point too, which has ended with the store's life.
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the client: %w", err)
	}
	return nil
}
