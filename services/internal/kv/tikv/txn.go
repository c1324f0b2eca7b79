package tikv

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	clientkv "github.com/tikv/client-go/v2/kv"
	client "github.com/tikv/client-go/v2/tikv"

	"ankusa.dev/services/internal/kv"
)

var errEmptyValue = errors.New("a value needs at least one byte")

// txn is a kv.Txn.
type txn struct {
	*reader
	client *client.KVTxn
	began  time.Time
	dirty  bool
	failed error // a write that was too large: what is left of the transaction must not commit
}

// Update implements kv.Store.
func (s *Store) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	ts, err := s.timestamp(ctx)
	if err != nil {
		return 0, err
	}
	t, err := s.txn(ts)
	if err != nil {
		return 0, s.failure(ctx, "begin", err)
	}
	if err := fn(t); err != nil {
		return 0, err
	}
	if t.failed != nil {
		return 0, t.failed
	}
	if !t.dirty {
		return t.Timestamp(), s.open()
	}
	return t.commit(ctx, o)
}

func (s *Store) txn(ts uint64) (*txn, error) {
	c, err := s.client.Begin(client.WithStartTS(ts))
	if err != nil {
		return nil, err
	}
	c.GetUnionStore().SetEntrySizeLimit(MaxEntry, MaxTxn)
	return &txn{reader: s.reader(ts, c.GetSnapshot()), client: c, began: time.Now()}, nil
}

// Put implements kv.Txn.
func (t *txn) Put(key, value []byte) error {
	if len(value) == 0 {
		return errEmptyValue
	}
	return t.write(t.client.Set(t.store.space.key(key), value))
}

// Delete implements kv.Txn.
func (t *txn) Delete(key []byte) error { return t.write(t.client.Delete(t.store.space.key(key))) }

func (t *txn) write(err error) error {
	t.dirty = true
	if err != nil {
		t.failed = t.store.failure(context.Background(), "buffer a write", err)
	}
	return t.failed
}

// Lock implements kv.Txn. Nothing is sent: the lock is taken, and conflicts, with the commit.
func (t *txn) Lock(ctx context.Context, keys ...[]byte) error {
	t.dirty = t.dirty || len(keys) > 0
	err := t.client.LockKeysWithWaitTime(ctx, clientkv.LockNoWait, t.store.space.keys(keys)...)
	return t.store.failure(ctx, "lock", err)
}

// own is the transaction's own write of a key of the cluster: its value, empty for a deletion.
func (t *txn) own(full []byte) (value []byte, ok bool) {
	v, err := t.client.GetMemBuffer().Get(full)
	return v, err == nil
}

// Get implements kv.Reader.
func (t *txn) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, ok := t.own(t.store.space.key(key))
	switch {
	case !ok:
		return t.reader.Get(ctx, key)
	case len(v) == 0:
		return nil, kv.ErrNotFound
	}
	return slices.Clone(v), nil
}

// BatchGet implements kv.Reader.
func (t *txn) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
	var rest [][]byte
	var at []int
	for i, k := range keys {
		v, ok := t.own(t.store.space.key(k))
		switch {
		case !ok:
			rest, at = append(rest, k), append(at, i)
		case len(v) > 0:
			values[i] = slices.Clone(v)
		}
	}
	found, err := t.reader.BatchGet(ctx, rest)
	if err != nil {
		return nil, err
	}
	for i, v := range found {
		values[at[i]] = v
	}
	return values, nil
}

// Scan implements kv.Reader.
func (t *txn) Scan(ctx context.Context, s kv.Scan) ([]kv.Pair, error) {
	from, to := t.store.space.bounds(s.Range)
	if bytes.Compare(from, to) >= 0 {
		return t.scan(ctx, s, nil)
	}
	var own []kv.Pair
	for it := t.client.GetMemBuffer().IterWithFlags(from, to); it.Valid(); {
		if it.HasValue() {
			own = append(own, kv.Pair{Key: slices.Clone(it.Key()), Value: slices.Clone(it.Value())})
		}
		if err := it.Next(); err != nil {
			return nil, t.store.failure(ctx, "scan", err)
		}
	}
	if s.Reverse {
		slices.Reverse(own)
	}
	return t.scan(ctx, s, own)
}
