package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"ankusa.dev/services/internal/kv"
)

// scanCheck is the number of rows after which a scan looks whether its context has ended.
const scanCheck = 256

// seekKeys is the number of keys from which a batch is looked up with one iterator. Fewer are mostly those of rows that
// have just been written: a lookup ends at the first table in memory that has its key, an iterator asks all tables.
const seekKeys = 64

// reader is an open snapshot.
type reader struct {
	s          *Store
	start      kv.Timestamp
	snap       *pebble.Snapshot
	seen       *pending // the newest batch visible here
	prev, next *reader
	scratch    []byte
}

// readerList holds open readers in order of their start. Not safe for concurrent use.
type readerList struct{ root reader }

func newReaderList() *readerList {
	l := &readerList{}
	l.root.prev, l.root.next = &l.root, &l.root
	return l
}

func (l *readerList) add(r *reader) {
	r.prev, r.next = l.root.prev, &l.root
	r.prev.next, r.next.prev = r, r
}

func (l *readerList) remove(r *reader) {
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
}

func (l *readerList) oldest() *reader {
	if l.root.next == &l.root {
		return nil
	}
	return l.root.next
}

func (r *reader) Timestamp() kv.Timestamp { return r.start }

func (r *reader) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := r.s.enter(ctx); err != nil {
		return nil, err
	}
	defer r.s.leave()
	v, err := r.get(key)
	if err == nil && v == nil {
		return nil, kv.ErrNotFound
	}
	return v, err
}

func (r *reader) BatchGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if err := r.s.enter(ctx); err != nil {
		return nil, err
	}
	defer r.s.leave()
	values := make([][]byte, len(keys))
	if len(keys) >= seekKeys {
		return values, r.seekAll(keys, values)
	}
	for i, key := range keys {
		v, err := r.get(key)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// seekAll looks the keys up in their order with one iterator, which remembers where it was: for neighbours that is
// several times cheaper than lookups one by one. The store is entered.
func (r *reader) seekAll(keys, values [][]byte) error {
	it, err := r.snap.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return fmt.Errorf("batch get: %w (%w)", kv.ErrUnavailable, err)
	}
	for _, i := range sortedOrder(keys) {
		r.scratch = appendKey(r.scratch[:0], keys[i])
		if it.SeekPrefixGE(r.scratch) {
			v := it.Value()
			values[i] = append(make([]byte, 0, len(v)), v...)
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("batch get: %w (%w)", kv.ErrUnavailable, err)
	}
	return nil
}

// sortedOrder is the indices of the keys in the keys' order.
func sortedOrder(keys [][]byte) []int {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	return order
}

// get returns nil for a key that does not exist. The store is entered.
func (r *reader) get(key []byte) ([]byte, error) {
	r.scratch = appendKey(r.scratch[:0], key)
	v, closer, err := r.snap.Get(r.scratch)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %x: %w (%w)", key, kv.ErrUnavailable, err)
	}
	value := append(make([]byte, 0, len(v)), v...)
	if err := closer.Close(); err != nil {
		return nil, fmt.Errorf("get %x: %w (%w)", key, kv.ErrUnavailable, err)
	}
	return value, nil
}

func (r *reader) Scan(ctx context.Context, sc kv.Scan) ([]kv.Pair, error) {
	return r.scan(ctx, sc, nil)
}

// scan merges the snapshot's rows with own ones, which stand in the scan's order, one per key, and win.
func (r *reader) scan(ctx context.Context, sc kv.Scan, own []*op) ([]kv.Pair, error) {
	if sc.Limit < 1 {
		return nil, errScanLimit
	}
	if err := r.s.enter(ctx); err != nil {
		return nil, err
	}
	defer r.s.leave()
	rows, err := r.openRows(sc)
	if err != nil {
		return nil, err
	}
	var pairs []kv.Pair
	for n := 0; len(pairs) < sc.Limit && (rows.valid || len(own) > 0) && err == nil; n++ {
		if n%scanCheck == scanCheck-1 {
			err = ctx.Err()
		}
		order := rows.compare(own)
		if order < 0 {
			pairs = append(pairs, rows.pair(sc.KeyOnly))
		} else {
			if !own[0].deleted() {
				pairs = append(pairs, own[0].pair(sc.KeyOnly))
			}
			own = own[1:]
		}
		if order <= 0 {
			rows.step()
		}
	}
	if err = errors.Join(err, rows.close()); err != nil {
		return nil, err
	}
	return pairs, nil
}

// rows is a cursor over the snapshot in the order of a scan.
type rows struct {
	it      *pebble.Iterator
	reverse bool
	valid   bool
}

func (r *reader) openRows(sc kv.Scan) (*rows, error) {
	lower, upper := appendKey(nil, sc.From), upperBound(sc.To)
	if bytes.Compare(lower, upper) >= 0 {
		return &rows{}, nil
	}
	it, err := r.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("scan: %w (%w)", kv.ErrUnavailable, err)
	}
	c := &rows{it: it, reverse: sc.Reverse}
	if sc.Reverse {
		c.valid = it.Last()
	} else {
		c.valid = it.First()
	}
	return c, nil
}

func (c *rows) step() {
	if c.reverse {
		c.valid = c.it.Prev()
	} else {
		c.valid = c.it.Next()
	}
}

// compare says whether the snapshot's row (negative), the first own one (positive) or both are next.
func (c *rows) compare(own []*op) int {
	if len(own) == 0 {
		return -1
	}
	if !c.valid {
		return 1
	}
	order := bytes.Compare(c.it.Key()[1:], own[0].key)
	if c.reverse {
		return -order
	}
	return order
}

func (c *rows) pair(keyOnly bool) kv.Pair {
	if keyOnly {
		return newPair(c.it.Key()[1:], nil)
	}
	return newPair(c.it.Key()[1:], c.it.Value())
}

func (c *rows) close() error {
	if c.it == nil {
		return nil
	}
	if err := c.it.Close(); err != nil {
		return fmt.Errorf("scan: %w (%w)", kv.ErrUnavailable, err)
	}
	return nil
}

// newPair copies both slices into one allocation. An empty value stays nil.
func newPair(key, value []byte) kv.Pair {
	buf := append(make([]byte, 0, len(key)+len(value)), key...)
	p := kv.Pair{Key: buf[:len(key):len(key)]}
	if len(value) > 0 {
		p.Value = append(buf, value...)[len(key):]
	}
	return p
}
