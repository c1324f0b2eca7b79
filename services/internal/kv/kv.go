// Package kv is the port to the ordered, transactional key-value store that all durable state stands on.
//
// The isolation is snapshot isolation, no more: a transaction reads the state as of its start timestamp, and its commit
// fails when a key that it wrote or locked was committed by another transaction after that timestamp. Write skew and
// phantoms commit. A caller that decides from a key it only read must Lock it.
package kv

import (
	"context"
	"time"

	"ankusa.dev/services/internal/hook"
)

// Timestamp is a point of the store's clock. Those of updates and of Now are handed out strictly increasing.
type Timestamp = hook.Timestamp

// Pair is one key and its value. The caller owns both slices.
type Pair struct{ Key, Value []byte }

// Range is the half-open interval [From, To) of keys. An empty To means the end of the key space.
type Range struct{ From, To []byte }

// Scan says which part of a range is read. Limit must be positive: no scan is unbounded.
type Scan struct {
	Range
	Limit   int
	Reverse bool // from the highest key down; both bounds hold
	KeyOnly bool // leave the values nil
}

// Reader is a consistent snapshot. It is valid only inside the closure that received it and is not safe for use by
// several goroutines. Slices returned belong to the caller.
type Reader interface {
	// Timestamp is the snapshot's: every transaction whose commit timestamp is not above it is seen, no other is.
	Timestamp() Timestamp
	// Get returns the value, or ErrNotFound.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// BatchGet returns one value per key, in order; nil stands for a key that does not exist. Values that exist are
	// never nil.
	BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error)
	// Scan returns the pairs of the range in the order asked for, at most Limit of them.
	Scan(ctx context.Context, s Scan) ([]Pair, error)
}

// Txn is a Reader that also buffers writes. Reads see the transaction's own writes. Nothing is visible to others
// before the commit, which happens when the closure returns nil. Put and Delete do not check that the key exists.
type Txn interface {
	Reader
	// Put stores a value of at least one byte. The transaction keeps both slices: the caller must not change them.
	Put(key, value []byte) error
	// Delete removes the key; removing one that does not exist is no error, and is a write for conflict checks.
	Delete(key []byte) error
	// Lock makes the commit fail if another transaction commits a write of the key after this one's start, and makes
	// others that write or lock the key conflict with this one, without changing the value.
	Lock(ctx context.Context, keys ...[]byte) error
}

// UpdateOptions bound one transaction.
type UpdateOptions struct {
	// Bound fails the commit, with ErrBound, unless its commit timestamp is at most Bound after the start timestamp.
	// Zero means no bound.
	Bound time.Duration
}

// Store is the port. All methods are safe for concurrent use. Errors are of the kinds of this package, or the
// closure's own, or the context's.
type Store interface {
	// View runs fn on a snapshot that holds everything committed before the call began; its timestamp may lie before
	// that of an earlier Now. It returns only when all that fn could see is durable, and fails with ErrUnavailable where
	// that cannot be had.
	View(ctx context.Context, fn func(Reader) error) error
	// Update runs fn once and commits its writes, and returns the commit's timestamp. It does not retry: see Retry.
	// It returns nil only when the commit, and everything that fn could see, is durable. A transaction that wrote and
	// locked nothing commits nothing; its timestamp is its snapshot's. fn must be free of side effects.
	Update(ctx context.Context, o UpdateOptions, fn func(Txn) error) (Timestamp, error)
	// Now is a fresh timestamp, above that of every transaction that has committed.
	Now(ctx context.Context) (Timestamp, error)
	// DropRange deletes all keys of the range outside any transaction, at any time between call and return. It is for
	// ranges that nobody reads or writes any more.
	DropRange(ctx context.Context, r Range) error
	// Close ends the store's goroutines and frees what it holds. Calls after it, or still open at its end, fail with
	// ErrUnavailable.
	Close() error
}

// Collector is implemented by stores whose old versions nobody else collects. Collect removes versions that no
// snapshot at or after safe can see, and returns how far it really got, which others may hold back.
type Collector interface {
	Collect(ctx context.Context, safe Timestamp) (Timestamp, error)
}
