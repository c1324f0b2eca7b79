package tikv

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/tikv/client-go/v2/txnkv/txnsnapshot"
	"github.com/tikv/client-go/v2/util"

	"ankusa.dev/services/internal/kv"
)

var errLimit = errors.New("a scan needs a positive limit")

// reader is a kv.Reader. A read whose context ended may still be at work in the snapshot while the closure goes on:
// the snapshot can bear it, and nothing else is touched from there.
type reader struct {
	store    *Store
	ts       uint64
	snapshot *txnsnapshot.KVSnapshot
	// Locks that this snapshot needs not wait for: their transactions commit later than it, or have committed before.
	ignored, passed *util.TSSet
}

func (s *Store) reader(ts uint64, snapshot *txnsnapshot.KVSnapshot) *reader {
	return &reader{store: s, ts: ts, snapshot: snapshot, ignored: &util.TSSet{}, passed: &util.TSSet{}}
}

// Timestamp implements kv.Reader.
func (r *reader) Timestamp() kv.Timestamp { return kv.Timestamp(r.ts) }

// Get implements kv.Reader.
func (r *reader) Get(ctx context.Context, key []byte) ([]byte, error) {
	var found []byte
	full := r.store.space.key(key)
	err := r.store.try(ctx, "get", func(ctx context.Context) error {
		v, err := r.snapshot.Get(ctx, full)
		found = v
		return err
	})
	if err != nil {
		return nil, err
	}
	// The snapshot may keep what it has found.
	return slices.Clone(found), nil
}

// BatchGet implements kv.Reader.
func (r *reader) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	full := r.store.space.keys(keys)
	found, err := r.batchGet(ctx, full)
	if err != nil {
		return nil, err
	}
	for i, k := range full {
		values[i] = slices.Clone(found[string(k)])
	}
	return values, nil
}

func (r *reader) batchGet(ctx context.Context, full [][]byte) (map[string][]byte, error) {
	distinct := slices.Clone(full)
	slices.SortFunc(distinct, bytes.Compare)
	distinct = slices.CompactFunc(distinct, bytes.Equal)
	var found map[string][]byte
	err := r.store.try(ctx, "batch get", func(ctx context.Context) error {
		m, err := r.snapshot.BatchGet(ctx, distinct)
		found = m
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Scan implements kv.Reader.
func (r *reader) Scan(ctx context.Context, s kv.Scan) ([]kv.Pair, error) { return r.scan(ctx, s, nil) }

// scan merges the snapshot's pairs with own, the transaction's writes in the range in scan order, deletions without
// a value. Keys of own are the cluster's.
func (r *reader) scan(ctx context.Context, s kv.Scan, own []kv.Pair) ([]kv.Pair, error) {
	if s.Limit <= 0 {
		return nil, errLimit
	}
	from, to := r.store.space.bounds(s.Range)
	c := cursor{reader: r, from: from, to: to, reverse: s.Reverse, keyOnly: s.KeyOnly}
	var out []kv.Pair
	for len(out) < s.Limit {
		p, err := c.merge(ctx, &own, s.Limit-len(out))
		if err != nil {
			return nil, err
		}
		if p == nil {
			break
		}
		if len(p.Value) == 0 && !p.stored {
			continue
		}
		out = append(out, p.result(r.store.space, s.KeyOnly))
	}
	return out, nil
}

// entry is a pair with a key of the cluster. A stored one exists, even without its value.
type entry struct {
	kv.Pair
	stored bool
}

func (e *entry) result(s space, keyOnly bool) kv.Pair {
	p := kv.Pair{Key: s.strip(e.Key)}
	if !keyOnly {
		p.Value = slices.Clone(e.Value)
	}
	return p
}

// merge takes the next entry of the cursor and of own, which hides an equal key; nil at the end. want is how many more
// the caller can use.
func (c *cursor) merge(ctx context.Context, own *[]kv.Pair, want int) (*entry, error) {
	p, err := c.peek(ctx, want+len(*own))
	if err != nil {
		return nil, err
	}
	if len(*own) == 0 {
		if p == nil {
			return nil, nil
		}
		c.skip()
		return &entry{Pair: *p, stored: true}, nil
	}
	mine := (*own)[0]
	if p != nil {
		switch order := c.compare(p.Key, mine.Key); {
		case order < 0:
			c.skip()
			return &entry{Pair: *p, stored: true}, nil
		case order == 0:
			c.skip()
		}
	}
	*own = (*own)[1:]
	return &entry{Pair: mine}, nil
}
