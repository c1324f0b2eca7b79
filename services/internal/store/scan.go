package store

import (
	"bytes"
	"context"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// DueScan asks for rows of one sink, in due order: those behind (From, After), and with a zero After those at From, too.
type DueScan struct {
	Partition uint8
	Key       hook.SinkKey
	From      hook.Timestamp
	After     hook.ID
	Limit     int
}

// DuePage is a page of rows as of a snapshot. More is false when the snapshot has no row of the key beyond the page.
type DuePage struct {
	Rows []hook.Delivery
	More bool
}

// ScanDue reads a page of one sink's rows, waiting ones included whose due time has not come. Of an ordered sink these
// are the wake-ups of members that wait for another attempt: they have lane, place, due time and hook, and neither
// version nor state.
func (s *Store) ScanDue(ctx context.Context, q DueScan) (page DuePage, err error) {
	family := dueFamily(q.Partition, q.Key)
	within := family.all()
	within.From = append(bytes.Clone(family), key(nil).ts(q.From)...)
	if q.After != (hook.ID{}) {
		within.From = append(key(within.From).id(q.After), 0)
	}
	err = s.kv.View(ctx, func(r kv.Reader) error {
		pairs, err := r.Scan(ctx, kv.Scan{Range: within, Limit: q.Limit})
		if err != nil {
			return err
		}
		page = DuePage{More: len(pairs) == q.Limit, Rows: make([]hook.Delivery, len(pairs))}
		for i, p := range pairs {
			if err := dueRow(q, len(family), p, &page.Rows[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return DuePage{}, fmt.Errorf("scan due rows of %s: %w", q.Key, err)
	}
	return page, nil
}

func dueRow(q DueScan, prefix int, p kv.Pair, d *hook.Delivery) error {
	k := readKey(p.Key, prefix)
	d.Row = hook.Row{Partition: q.Partition, Key: q.Key, Due: k.ts(), Hook: k.id()}
	if err := k.end(); err != nil {
		return fmt.Errorf("key %x: %w", p.Key, err)
	}
	return decodeRow(p.Value, d)
}

// Found is a named row as the store has it: any version, or nil for none.
type Found struct {
	Delivery *hook.Delivery
	// Hook says whether the row's hook is there; only Reread fills it.
	Hook bool
}

// Rows reads rows by name, whatever their version is, in one snapshot.
func (s *Store) Rows(ctx context.Context, rows []hook.Row) ([]Found, error) {
	return s.find(ctx, rows, false)
}

// Reread is Rows that also tells whether the hooks are there.
func (s *Store) Reread(ctx context.Context, rows []hook.Row) ([]Found, error) {
	return s.find(ctx, rows, true)
}

func (s *Store) find(ctx context.Context, rows []hook.Row, hooks bool) ([]Found, error) {
	keys := make([][]byte, 0, 2*len(rows))
	for i := range rows {
		keys = append(keys, rowKey(&rows[i]))
	}
	for i := 0; hooks && i < len(rows); i++ {
		keys = append(keys, hookKey(rows[i].Partition, rows[i].Key.Tenant, rows[i].Hook))
	}
	out := make([]Found, len(rows))
	err := s.kv.View(ctx, func(r kv.Reader) error {
		values, err := r.BatchGet(ctx, keys)
		if err != nil {
			return err
		}
		for i := range rows {
			out[i].Hook = hooks && values[len(rows)+i] != nil
			if values[i] == nil {
				continue
			}
			if out[i].Delivery, err = readRow(&rows[i], values[i]); err != nil {
				return fmt.Errorf("hook %s: %w", rows[i].Hook, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d rows: %w", len(rows), err)
	}
	return out, nil
}

// readRow reads the value at a named row's key, or returns nil where that is not the named row: a member's key does not
// say whose place it is, and where an unordered row could be there may be a wake-up.
func readRow(row *hook.Row, value []byte) (*hook.Delivery, error) {
	d := &hook.Delivery{Row: *row}
	if err := decodeRow(value, d); err != nil {
		return nil, err
	}
	if d.Hook != row.Hook || d.Ordered != row.Ordered {
		return nil, nil
	}
	return d, nil
}

// Work is what one sink has outstanding in one partition.
type Work struct {
	Partition uint8
	Key       hook.SinkKey
	// Rows outstanding; it may be too high while commits go on, never too low for those before the call.
	Rows int64
	// Position: no outstanding row is due before it.
	Position hook.Timestamp
	// Ordered: the key may have lane members, which ScanDue does not find. It may be wrong where none is left.
	Ordered bool
}

// Outstanding visits each sink of a partition that has rows outstanding, by the counters. It reads page by page, each
// in a snapshot of its own. A key's settled count comes before what its writers committed, so that the difference errs
// upwards.
func (s *Store) Outstanding(ctx context.Context, partition uint8, visit func(Work)) error {
	var at Work
	settled, some := int64(0), false
	flush := func() {
		if at.Rows -= settled; some && at.Rows > 0 {
			visit(at)
		}
	}
	err := s.counters(ctx, partition, func(k hook.SinkKey, writer []byte, c counter) {
		if !some || k != at.Key {
			flush()
			at, settled, some = Work{Partition: partition, Key: k}, 0, true
		}
		at.Ordered = at.Ordered || c.ordered
		if len(writer) == 0 {
			settled, at.Position = int64(c.rows)-int64(c.foldedRows), c.position
			return
		}
		at.Rows += int64(c.rows)
	})
	if err != nil {
		return fmt.Errorf("read counters of partition %d: %w", partition, err)
	}
	flush()
	return nil
}

// counters visits the counters of a partition in key order; the leader's has no writer.
func (s *Store) counters(ctx context.Context, partition uint8, visit func(k hook.SinkKey, writer []byte, c counter)) error {
	family := partitionKey(partition, famCounter)
	return s.pages(ctx, family.all(), func(p kv.Pair) error { return visitCounter(p, len(family), visit) })
}

func visitCounter(p kv.Pair, prefix int, visit func(hook.SinkKey, []byte, counter)) error {
	k := readKey(p.Key, prefix)
	sink := k.sinkKey()
	if k.err != nil {
		return fmt.Errorf("key %x: %w", p.Key, k.err)
	}
	c, err := decodeCounter(p.Value)
	if err != nil {
		return err
	}
	visit(sink, k.rest, c)
	return nil
}

// Pending sums what is outstanding for one source over all tenants and partitions.
func (s *Store) Pending(ctx context.Context, sourceID string) (rows int64, err error) {
	for p := range s.partitions {
		if err := s.Outstanding(ctx, uint8(p), func(w Work) {
			if w.Key.SourceID == sourceID {
				rows += w.Rows
			}
		}); err != nil {
			return 0, err
		}
	}
	return rows, nil
}
