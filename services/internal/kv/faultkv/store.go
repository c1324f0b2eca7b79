// Package faultkv injects faults into a store of the key-value port by a plan, for tests. It may be used within a
// testing/synctest bubble.
package faultkv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/services/internal/kv"
)

// Commit is a transaction whose closure has returned nil and that wrote or locked something.
type Commit struct {
	Start kv.Timestamp
	// Keys are those written or locked, in order of the calls. They must not be changed.
	Keys [][]byte
}

// Hooks stop and bend commits. Nil ones do nothing.
type Hooks struct {
	// Before runs between closure and commit, and may take its time. An error of it fails the Update as if it were the
	// closure's: nothing is written.
	Before func(context.Context, Commit) error
	// After runs between commit and answer, and decides the answer's error.
	After func(context.Context, Commit, kv.Timestamp, error) error
}

// Store injects faults into calls to another store. With a nil plan, no hooks and no outage it changes nothing.
type Store struct {
	inner kv.Store
	plan  Plan
	calls [len(opNames)]atomic.Int64
	hooks atomic.Pointer[Hooks]

	mu    sync.Mutex
	down  bool
	until time.Time // end of a planned outage
}

var _ kv.Store = (*Store)(nil)

// New wraps inner, which is closed with it. A nil plan plans nothing.
func New(inner kv.Store, plan Plan) *Store {
	s := &Store{inner: inner, plan: plan}
	s.hooks.Store(&Hooks{})
	return s
}

// Unwrap is the store inside, past all faults.
func (s *Store) Unwrap() kv.Store { return s.inner }

// SetHooks replaces the hooks for all commits whose closure returns from now on.
func (s *Store) SetHooks(h Hooks) { s.hooks.Store(&h) }

// SetDown takes the store away, or gives it back: everything, calls within open closures and commits included,
// answers kv.ErrUnavailable meanwhile.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *Store) available() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || time.Now().Before(s.until) {
		return fmt.Errorf("injected outage: %w", kv.ErrUnavailable)
	}
	return nil
}

func (s *Store) outage(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(s.until) {
		s.until = until
	}
}

// meet returns the planned kind of fault of a call, after its latency, or the error of a store that is away.
func (s *Store) meet(ctx context.Context, op Op, keys ...[]byte) (Kind, error) {
	n := int(s.calls[op].Add(1) - 1)
	if s.plan == nil {
		return None, s.available()
	}
	f := s.plan(Call{Op: op, N: n, Keys: keys})
	if err := pass(ctx, f.Latency); err != nil {
		return None, err
	}
	if f.Kind != Unavailable {
		return f.Kind, s.available()
	}
	if f.Outage > 0 {
		s.outage(f.Outage)
	}
	return None, fmt.Errorf("injected into %s %d: %w", op, n, kv.ErrUnavailable)
}

// pass lets time pass, or fails with the context's error.
func pass(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	if _, err := s.meet(ctx, View); err != nil {
		return err
	}
	return s.inner.View(ctx, func(r kv.Reader) error { return fn(&reader{r, s}) })
}

// Now implements kv.Store.
func (s *Store) Now(ctx context.Context) (kv.Timestamp, error) {
	if _, err := s.meet(ctx, Now); err != nil {
		return 0, err
	}
	return s.inner.Now(ctx)
}

// DropRange implements kv.Store.
func (s *Store) DropRange(ctx context.Context, r kv.Range) error {
	if _, err := s.meet(ctx, DropRange, r.From); err != nil {
		return err
	}
	return s.inner.DropRange(ctx, r)
}

// Close implements kv.Store.
func (s *Store) Close() error { return s.inner.Close() }

// Update implements kv.Store.
func (s *Store) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	if err := s.available(); err != nil {
		return 0, err
	}
	u := update{s: s, bound: o.Bound}
	ts, err := s.inner.Update(ctx, o, func(tx kv.Txn) error { return u.run(ctx, tx, fn) })
	if err == nil && u.doubtful {
		ts, err = 0, fmt.Errorf("injected, the commit landed: %w", kv.ErrUndetermined)
	}
	if u.hooks.After != nil {
		if err = u.hooks.After(ctx, u.commit, ts, err); err != nil {
			ts = 0
		}
	}
	return ts, err
}

// update is one run of Update.
type update struct {
	s        *Store
	bound    time.Duration
	hooks    Hooks
	commit   Commit
	doubtful bool // the answer to a successful commit is lost
}

func (u *update) run(ctx context.Context, tx kv.Txn, fn func(kv.Txn) error) error {
	t := &txn{reader: reader{tx, u.s}, tx: tx}
	if err := fn(t); err != nil || len(t.keys) == 0 {
		return err
	}
	u.commit, u.hooks = Commit{Start: tx.Timestamp(), Keys: t.keys}, *u.s.hooks.Load()
	if u.hooks.Before != nil {
		if err := u.hooks.Before(ctx, u.commit); err != nil {
			return err
		}
	}
	kind, err := u.s.meet(ctx, Update, t.keys...)
	return errors.Join(err, u.strike(kind))
}

// strike is the error that keeps the commit from happening, if the fault is of that kind.
func (u *update) strike(kind Kind) error {
	switch kind {
	case Conflict:
		return &kv.ConflictError{Key: append([]byte(nil), u.commit.Keys[0]...)}
	case Bound:
		if u.bound > 0 {
			return fmt.Errorf("injected: %w", kv.ErrBound)
		}
	case UndeterminedLost:
		return fmt.Errorf("injected, the commit is lost: %w", kv.ErrUndetermined)
	case UndeterminedLanded:
		u.doubtful = true
	}
	return nil
}

// reader meets the faults of reads.
type reader struct {
	inner kv.Reader
	s     *Store
}

func (r *reader) Timestamp() kv.Timestamp { return r.inner.Timestamp() }

func (r *reader) Get(ctx context.Context, key []byte) ([]byte, error) {
	if _, err := r.s.meet(ctx, Get, key); err != nil {
		return nil, err
	}
	return r.inner.Get(ctx, key)
}

func (r *reader) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if _, err := r.s.meet(ctx, BatchGet, keys...); err != nil {
		return nil, err
	}
	return r.inner.BatchGet(ctx, keys)
}

func (r *reader) Scan(ctx context.Context, sc kv.Scan) ([]kv.Pair, error) {
	if _, err := r.s.meet(ctx, Scan, sc.From); err != nil {
		return nil, err
	}
	return r.inner.Scan(ctx, sc)
}

// txn notes the keys that it writes or locks.
type txn struct {
	reader
	tx   kv.Txn
	keys [][]byte
}

func (t *txn) note(keys ...[]byte) {
	for _, key := range keys {
		t.keys = append(t.keys, append([]byte(nil), key...))
	}
}

func (t *txn) Put(key, value []byte) error {
	if err := t.tx.Put(key, value); err != nil {
		return err
	}
	t.note(key)
	return nil
}

func (t *txn) Delete(key []byte) error {
	if err := t.tx.Delete(key); err != nil {
		return err
	}
	t.note(key)
	return nil
}

func (t *txn) Lock(ctx context.Context, keys ...[]byte) error {
	if _, err := t.s.meet(ctx, Lock, keys...); err != nil {
		return err
	}
	if err := t.tx.Lock(ctx, keys...); err != nil {
		return err
	}
	t.note(keys...)
	return nil
}
