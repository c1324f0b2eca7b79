package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"ankusa.dev/services/internal/kv"
)

var (
	errScanLimit  = errors.New("scan without a positive limit")
	errEmptyValue = errors.New("empty value")
)

// linearOps is the number of own writes up to which they are searched one by one.
const linearOps = 8

type opKind uint8

const (
	opPut opKind = iota
	opDelete
	opLock
)

type op struct {
	kind       opKind
	nth        uint32 // of the transaction, once that is sorted
	key, value []byte
}

func (o *op) deleted() bool { return o.kind == opDelete }

func (o *op) pair(keyOnly bool) kv.Pair {
	if keyOnly {
		return newPair(o.key, nil)
	}
	return newPair(o.key, o.value)
}

// txn is an open transaction: its operations in order, of which the last put or delete of a key counts.
type txn struct {
	reader
	retired bool // from the open transactions
	*memory
	size    int
	index   map[string]int
	indexed int // operations that stand in the index
}

// memory is what a transaction grows, and the next one takes over.
type memory struct {
	ops    []op
	hashes []uint64 // of the operations' keys, made for the commit
	keys   []byte   // that were not the transaction's to keep
}

// maxKept bounds the operations of a transaction whose memory is kept.
const maxKept = 4096

// remember takes over what an earlier transaction grew.
func (s *Store) remember() *memory {
	if m, ok := s.memories.Get().(*memory); ok {
		return m
	}
	return new(memory)
}

// forget gives a transaction's memory away. Nothing of the transaction may be used any more.
func (s *Store) forget(m *memory) {
	if cap(m.ops) > maxKept || cap(m.keys) > maxKept*64 {
		return
	}
	clear(m.ops)
	m.ops, m.hashes, m.keys = m.ops[:0], m.hashes[:0], m.keys[:0]
	s.memories.Put(m)
}

func (t *txn) Put(key, value []byte) error {
	if len(value) == 0 {
		return fmt.Errorf("put %x: %w", key, errEmptyValue)
	}
	return t.add(op{kind: opPut, key: key, value: value})
}

func (t *txn) Delete(key []byte) error { return t.add(op{kind: opDelete, key: t.keep(key)}) }

func (t *txn) Lock(ctx context.Context, keys ...[]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, key := range keys {
		if err := t.add(op{kind: opLock, key: t.keep(key)}); err != nil {
			return err
		}
	}
	return nil
}

// keep copies a key that stays the caller's.
func (t *txn) keep(key []byte) []byte {
	at := len(t.keys)
	t.keys = append(t.keys, key...)
	return t.keys[at:len(t.keys):len(t.keys)]
}

func (t *txn) add(o op) error {
	size := len(o.key) + len(o.value)
	if size > t.s.opts.MaxEntryBytes {
		return fmt.Errorf("entry of %d bytes: %w", size, kv.ErrTooLarge)
	}
	if t.size+size > t.s.opts.MaxTransactionBytes {
		return fmt.Errorf("transaction of %d bytes: %w", t.size+size, kv.ErrTooLarge)
	}
	t.size += size
	t.ops = append(t.ops, o)
	return nil
}

func (t *txn) Get(ctx context.Context, key []byte) ([]byte, error) {
	own := t.own(key)
	if own == nil {
		return t.reader.Get(ctx, key)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if own.deleted() {
		return nil, kv.ErrNotFound
	}
	return bytes.Clone(own.value), nil
}

func (t *txn) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	values, err := t.reader.BatchGet(ctx, keys)
	if err != nil || len(t.ops) == 0 {
		return values, err
	}
	for i, key := range keys {
		if own := t.own(key); own != nil {
			values[i] = bytes.Clone(own.value)
		}
	}
	return values, nil
}

func (t *txn) Scan(ctx context.Context, sc kv.Scan) ([]kv.Pair, error) {
	return t.scan(ctx, sc, t.ownIn(sc))
}

// own returns the put or delete of the key that counts, or nil.
func (t *txn) own(key []byte) *op {
	if len(t.ops) <= linearOps {
		for i := len(t.ops) - 1; i >= 0; i-- {
			if o := &t.ops[i]; o.kind != opLock && bytes.Equal(o.key, key) {
				return o
			}
		}
		return nil
	}
	if t.index == nil {
		t.index = make(map[string]int, len(t.ops))
	}
	for ; t.indexed < len(t.ops); t.indexed++ {
		if o := &t.ops[t.indexed]; o.kind != opLock {
			t.index[string(o.key)] = t.indexed
		}
	}
	if i, ok := t.index[string(key)]; ok {
		return &t.ops[i]
	}
	return nil
}

// ownIn returns the puts and deletes of the range that count, in the order of the scan.
func (t *txn) ownIn(sc kv.Scan) []*op {
	var own []*op
	for i := range t.ops {
		o := &t.ops[i]
		if o.kind != opLock && bytes.Compare(o.key, sc.From) >= 0 && (len(sc.To) == 0 || bytes.Compare(o.key, sc.To) < 0) {
			own = append(own, o)
		}
	}
	// Newest first among equals, so that compaction keeps the one that counts.
	slices.Reverse(own)
	slices.SortStableFunc(own, func(a, b *op) int { return bytes.Compare(a.key, b.key) })
	own = slices.CompactFunc(own, func(a, b *op) bool { return bytes.Equal(a.key, b.key) })
	if sc.Reverse {
		slices.Reverse(own)
	}
	return own
}

// sort orders the operations by their keys, those of one key as they came: the engine finds the place of each from that of
// the one before it.
func (t *txn) sort() {
	for i := range t.ops {
		t.ops[i].nth = uint32(i)
	}
	slices.SortFunc(t.ops, func(a, b op) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.nth, b.nth))
	})
}

// encode prepares the commit outside every lock. The batch is nil if there are only locks.
func (t *txn) encode() (*pebble.Batch, error) {
	t.sort()
	t.hashes = slices.Grow(t.hashes[:0], len(t.ops))[:len(t.ops)]
	writes := 0
	for i := range t.ops {
		t.hashes[i] = t.s.recent.hash(t.ops[i].key)
		if t.ops[i].kind != opLock {
			writes++
		}
	}
	if writes == 0 {
		return nil, nil
	}
	const perOp = 16 // kind, lengths, prefix
	batch := t.s.db.NewBatchWithSize(t.size + perOp*writes + 64)
	for i := range t.ops {
		if err := t.ops[i].encode(batch); err != nil {
			return nil, fmt.Errorf("encode transaction: %w (%w)", kv.ErrUnavailable, errors.Join(err, batch.Close()))
		}
	}
	return batch, nil
}

func (o *op) encode(batch *pebble.Batch) error {
	switch o.kind {
	case opPut:
		d := batch.SetDeferred(len(o.key)+1, len(o.value))
		d.Key[0] = dataPrefix
		copy(d.Key[1:], o.key)
		copy(d.Value, o.value)
		return d.Finish()
	case opDelete:
		d := batch.DeleteDeferred(len(o.key) + 1)
		d.Key[0] = dataPrefix
		copy(d.Key[1:], o.key)
		return d.Finish()
	}
	return nil
}
