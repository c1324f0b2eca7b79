package store

import (
	"context"
	"errors"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// WriterRecord says that a writer's counters exist, and when it last said that it lives.
type WriterRecord struct {
	ID hook.RunID
	// Flagged: the writer has rows that no leader has acknowledged.
	Flagged bool
	Beat    hook.Timestamp
}

// Beat says that the writer lives. It is to be repeated well within the time after which a leader takes a silent writer
// for gone.
func (w *Writer) Beat(ctx context.Context) error { return w.record(ctx) }

// introduce records the writer before its first commit, so that no counter is without a record.
func (w *Writer) introduce(ctx context.Context) error {
	if w.recorded.Load() {
		return nil
	}
	return w.Beat(ctx)
}

// RaiseFlag tells whoever leads next that this writer has rows which no leader acknowledged.
func (w *Writer) RaiseFlag(ctx context.Context) error { return w.flag(ctx, true) }

// LowerFlag takes that back.
func (w *Writer) LowerFlag(ctx context.Context) error { return w.flag(ctx, false) }

func (w *Writer) flag(ctx context.Context, up bool) error {
	w.flagged.Store(up)
	return w.record(ctx)
}

// record looks at the flag within the transaction: a beat that a flag overtakes conflicts with it, and looks again.
func (w *Writer) record(ctx context.Context) error {
	_, err := kv.Retry(ctx, w.store.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		return t.Put(writerKey(w.id[:]), newValue(16).uint(2, bit(w.flagged.Load())).fixed(3, uint64(t.Timestamp())))
	})
	if err != nil {
		return fmt.Errorf("record writer %x: %w", w.id, err)
	}
	w.recorded.Store(true)
	return nil
}

// Writers reads the records of all writers, page by page.
func (s *Store) Writers(ctx context.Context) (out []WriterRecord, err error) {
	family := clusterKey(famWriter)
	err = s.pages(ctx, family.all(), func(p kv.Pair) error {
		rec := WriterRecord{ID: hook.RunID(readKey(p.Key, len(family)).take(16))}
		err := decode("writer", p.Value, func(f field) error {
			switch f.num {
			case 2:
				rec.Flagged = f.flag()
			case 3:
				rec.Beat = hook.Timestamp(f.v)
			}
			return nil
		})
		out = append(out, rec)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read writers: %w", err)
	}
	return out, nil
}

// foldPage bounds the counters that one transaction folds.
const foldPage = 256

// Fold takes the counters of a writer that is gone for good into the leader's, page by page, and removes its record. A
// counter with nothing outstanding and no dead letter goes altogether. It may be repeated after an error. A writer that
// was not gone after all makes sums too high from then on, never too low.
func (l *Leader) Fold(ctx context.Context, writer hook.RunID) error {
	for p := range l.store.partitions {
		slots, err := l.countersOf(ctx, uint8(p), writer)
		if err != nil {
			return fmt.Errorf("fold writer %x: %w", writer, err)
		}
		for slot, keys := range slots {
			for ; len(keys) > 0; keys = keys[min(foldPage, len(keys)):] {
				if err := l.foldPage(ctx, slot, writer, keys[:min(foldPage, len(keys))]); err != nil {
					return fmt.Errorf("fold writer %x: %w", writer, err)
				}
			}
		}
	}
	return l.cluster(ctx, "forget writer", writer, func(t kv.Txn) error { return t.Delete(writerKey(writer[:])) })
}

// countersOf finds a writer's counters in a partition, by the slot that guards them.
func (l *Leader) countersOf(ctx context.Context, partition uint8, writer hook.RunID) (map[Slot][]hook.SinkKey, error) {
	out := make(map[Slot][]hook.SinkKey)
	err := l.store.counters(ctx, partition, func(k hook.SinkKey, id []byte, _ counter) {
		if string(id) == string(writer[:]) {
			slot := SlotOf(partition, k.Tenant)
			out[slot] = append(out[slot], k)
		}
	})
	return out, err
}

func (l *Leader) foldPage(ctx context.Context, slot Slot, writer hook.RunID, keys []hook.SinkKey) error {
	s := &l.slots[int(slot.Partition)*FenceSlots+int(slot.Index)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.resolve(ctx, slot, s); err != nil {
		return err
	}
	s.counters = nil // read again by the next settle
	_, err := kv.Retry(ctx, l.store.kv, kv.UpdateOptions{Bound: CommitBound}, attempts, func(t kv.Txn) error {
		return l.fold(ctx, t, slot, writer, keys)
	})
	return err
}

// fold reads the fence, against a later leader, and for each key the leader's counter and the writer's, which is locked
// by its deletion.
func (l *Leader) fold(ctx context.Context, t kv.Txn, slot Slot, writer hook.RunID, keys []hook.SinkKey) error {
	read := make([][]byte, 0, 1+2*len(keys))
	read = append(read, fenceKey(slot))
	for _, k := range keys {
		read = append(read, counterKey(slot.Partition, k, nil), counterKey(slot.Partition, k, writer[:]))
	}
	values, err := t.BatchGet(ctx, read)
	if err != nil {
		return err
	}
	if err := l.hold(t, slot, values[0]); err != nil {
		return err
	}
	w := &puts{txn: t}
	for i := 1; i < len(read); i += 2 {
		total, err := decodeCounter(values[i])
		gone, err2 := decodeCounter(values[i+1])
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		total.fold(gone)
		w.delete(read[i+1])
		done := total.foldedRows == total.rows && total.dead == 0
		if done && total.ordered {
			// Rows of another writer may have been settled in place of members that are still there.
			if done, err = lastWriter(ctx, t, slot.Partition, keys[i/2]); err != nil {
				return err
			}
		}
		if done {
			w.delete(read[i])
			continue
		}
		w.put(read[i], total.encode())
	}
	return w.err
}

func (c *counter) fold(gone counter) {
	c.foldedRows += gone.rows
	c.foldedBytes += gone.bytes
	c.ordered = c.ordered || gone.ordered
}

// lastWriter says whether no writer has a counter of the key but those that the transaction folds.
func lastWriter(ctx context.Context, r kv.Reader, partition uint8, k hook.SinkKey) (bool, error) {
	leaders := counterKey(partition, k, nil)
	writers := kv.Range{From: after(leaders), To: successor(leaders)}
	pairs, err := r.Scan(ctx, kv.Scan{Range: writers, Limit: 1, KeyOnly: true})
	return len(pairs) == 0, err
}
