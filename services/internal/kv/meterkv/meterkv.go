// Package meterkv counts the calls that go through the store port, so that anybody can see what an idle process asks of
// its store.
package meterkv

import (
	"context"

	"ankusa.dev/services/internal/kv"
)

// Store passes every call on and reports it. A call's class is that of the first key that it touches.
type Store struct {
	next  kv.Store
	class func(key []byte) string
	count func(class string)
}

// New wraps a store. class must return one of a fixed set of texts; count is called once for each call, from any
// goroutine.
func New(next kv.Store, class func(key []byte) string, count func(class string)) *Store {
	return &Store{next: next, class: class, count: count}
}

// Unwrap is the store inside, past the counting.
func (s *Store) Unwrap() kv.Store { return s.next }

// Clock is the class of calls that touch no key.
const Clock = "clock"

// seen remembers the first key of one call.
type seen struct {
	class func([]byte) string
	name  string
}

func (s *seen) key(k []byte) {
	if s.name == "" {
		s.name = s.class(k)
	}
}

func (s *seen) report(count func(string)) {
	if s.name == "" {
		s.name = Clock
	}
	count(s.name)
}

// View counts one call.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	first := seen{class: s.class}
	defer func() { first.report(s.count) }()
	return s.next.View(ctx, func(r kv.Reader) error { return fn(&reader{Reader: r, seen: &first}) })
}

// Update counts one call.
func (s *Store) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	first := seen{class: s.class}
	defer func() { first.report(s.count) }()
	return s.next.Update(ctx, o, func(t kv.Txn) error { return fn(&txn{Txn: t, seen: &first}) })
}

// Now counts one call of class Clock.
func (s *Store) Now(ctx context.Context) (kv.Timestamp, error) {
	s.count(Clock)
	return s.next.Now(ctx)
}

// DropRange counts one call.
func (s *Store) DropRange(ctx context.Context, r kv.Range) error {
	s.count(s.class(r.From))
	return s.next.DropRange(ctx, r)
}

// Close passes the call on.
func (s *Store) Close() error { return s.next.Close() }

type reader struct {
	kv.Reader
	*seen
}

func (r *reader) Get(ctx context.Context, key []byte) ([]byte, error) {
	r.key(key)
	return r.Reader.Get(ctx, key)
}

func (r *reader) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	r.all(keys)
	return r.Reader.BatchGet(ctx, keys)
}

func (r *reader) Scan(ctx context.Context, s kv.Scan) ([]kv.Pair, error) {
	r.key(s.From)
	return r.Reader.Scan(ctx, s)
}

func (s *seen) all(keys [][]byte) {
	if len(keys) > 0 {
		s.key(keys[0])
	}
}

type txn struct {
	kv.Txn
	*seen
}

func (t *txn) Get(ctx context.Context, key []byte) ([]byte, error) {
	t.key(key)
	return t.Txn.Get(ctx, key)
}

func (t *txn) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	t.all(keys)
	return t.Txn.BatchGet(ctx, keys)
}

func (t *txn) Scan(ctx context.Context, s kv.Scan) ([]kv.Pair, error) {
	t.key(s.From)
	return t.Txn.Scan(ctx, s)
}

func (t *txn) Put(key, value []byte) error {
	t.key(key)
	return t.Txn.Put(key, value)
}

func (t *txn) Delete(key []byte) error {
	t.key(key)
	return t.Txn.Delete(key)
}

func (t *txn) Lock(ctx context.Context, keys ...[]byte) error {
	t.all(keys)
	return t.Txn.Lock(ctx, keys...)
}
