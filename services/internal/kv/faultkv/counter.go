package faultkv

import (
	"context"
	"maps"
	"sync"

	"ankusa.dev/services/internal/kv"
)

// Use is what a Counter counts by.
type Use struct {
	Op Op
	// Class is that of the key, or of the first key of a range. View, Update and Now have none.
	Class string
}

// Counter counts what is asked of another store: calls of View, Update (whether it commits or not) and Now, and every
// key that is read, written or locked. A Scan or a DropRange counts once.
type Counter struct {
	inner    kv.Store
	classify func(key []byte) string

	mu     sync.Mutex
	counts map[Use]int
}

var _ kv.Store = (*Counter)(nil)

// Count wraps inner, which is closed with it. classify names the class of a key, by its prefix for instance; it must
// be safe for concurrent use and not keep the key.
func Count(inner kv.Store, classify func(key []byte) string) *Counter {
	return &Counter{inner: inner, classify: classify, counts: map[Use]int{}}
}

// Counts returns what was counted since the beginning or the last Reset.
func (c *Counter) Counts() map[Use]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Reset begins again at zero.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.counts)
}

func (c *Counter) call(op Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[Use{Op: op}]++
}

func (c *Counter) touch(op Op, keys ...[]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.counts[Use{op, c.classify(key)}]++
	}
}

// View implements kv.Store.
func (c *Counter) View(ctx context.Context, fn func(kv.Reader) error) error {
	c.call(View)
	return c.inner.View(ctx, func(r kv.Reader) error { return fn(&countingReader{r, c}) })
}

// Update implements kv.Store.
func (c *Counter) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	c.call(Update)
	return c.inner.Update(ctx, o, func(tx kv.Txn) error { return fn(&countingTxn{countingReader{tx, c}, tx}) })
}

// Now implements kv.Store.
func (c *Counter) Now(ctx context.Context) (kv.Timestamp, error) {
	c.call(Now)
	return c.inner.Now(ctx)
}

// DropRange implements kv.Store.
func (c *Counter) DropRange(ctx context.Context, r kv.Range) error {
	c.touch(DropRange, r.From)
	return c.inner.DropRange(ctx, r)
}

// Close implements kv.Store.
func (c *Counter) Close() error { return c.inner.Close() }

type countingReader struct {
	kv.Reader
	c *Counter
}

func (r *countingReader) Get(ctx context.Context, key []byte) ([]byte, error) {
	r.c.touch(Get, key)
	return r.Reader.Get(ctx, key)
}

func (r *countingReader) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	r.c.touch(BatchGet, keys...)
	return r.Reader.BatchGet(ctx, keys)
}

func (r *countingReader) Scan(ctx context.Context, s kv.Scan) ([]kv.Pair, error) {
	r.c.touch(Scan, s.From)
	return r.Reader.Scan(ctx, s)
}

type countingTxn struct {
	countingReader
	tx kv.Txn
}

func (t *countingTxn) Put(key, value []byte) error {
	t.c.touch(Put, key)
	return t.tx.Put(key, value)
}

func (t *countingTxn) Delete(key []byte) error {
	t.c.touch(Delete, key)
	return t.tx.Delete(key)
}

func (t *countingTxn) Lock(ctx context.Context, keys ...[]byte) error {
	t.c.touch(Lock, keys...)
	return t.tx.Lock(ctx, keys...)
}
