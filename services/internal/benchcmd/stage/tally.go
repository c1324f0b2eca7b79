package stage

import (
	"context"
	"maps"
	"sync"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/meterkv"
	"ankusa.dev/services/internal/store"
)

// Counts are the calls through the store port so far.
type Counts struct {
	// Calls by the class of the first key that they touch.
	Calls map[string]int
	// Transactions are calls that may write.
	Transactions int
	// Writes are keys that transactions put or deleted; those that failed count, too.
	Writes int
}

// Sub is what came since an earlier count.
func (c Counts) Sub(before Counts) Counts {
	out := Counts{Calls: map[string]int{}, Transactions: c.Transactions - before.Transactions, Writes: c.Writes - before.Writes}
	for class, n := range c.Calls {
		if n -= before.Calls[class]; n > 0 {
			out.Calls[class] = n
		}
	}
	return out
}

// All calls of any class.
func (c Counts) All() (n int) {
	for _, calls := range c.Calls {
		n += calls
	}
	return n
}

// tally counts what passes through a store port.
type tally struct {
	kv.Store
	mu     sync.Mutex
	counts Counts
}

// newTally puts the counters around a port. The store to use is the second result.
func newTally(port kv.Store) (*tally, kv.Store) {
	t := &tally{Store: port, counts: Counts{Calls: map[string]int{}}}
	return t, meterkv.New(t, store.Class, t.called)
}

// Unwrap is the store inside.
func (t *tally) Unwrap() kv.Store { return t.Store }

func (t *tally) called(class string) {
	t.mu.Lock()
	t.counts.Calls[class]++
	t.mu.Unlock()
}

// Counts so far.
func (t *tally) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.counts
	out.Calls = maps.Clone(out.Calls)
	return out
}

// Update counts one transaction and what it wrote.
func (t *tally) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	writes := 0
	defer func() {
		t.mu.Lock()
		t.counts.Transactions++
		t.counts.Writes += writes
		t.mu.Unlock()
	}()
	return t.Store.Update(ctx, o, func(tx kv.Txn) error { return fn(&talliedTxn{tx, &writes}) })
}

type talliedTxn struct {
	kv.Txn
	writes *int
}

func (t *talliedTxn) Put(key, value []byte) error {
	*t.writes++
	return t.Txn.Put(key, value)
}

func (t *talliedTxn) Delete(key []byte) error {
	*t.writes++
	return t.Txn.Delete(key)
}
