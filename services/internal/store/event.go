package store

import (
	"context"
	"fmt"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// encodeEvents is the log entry of one settle: one value, whatever the batch holds.
func encodeEvents(batch []hook.Settlement, at hook.Timestamp) []byte {
	e := newValue(160 * len(batch))
	scratch, events := make([]byte, 0, 256), make([]hook.Event, 0, 3)
	for i := range batch {
		events = batch[i].AppendTransitions(events[:0], at)
		for j := range events {
			scratch = appendEvent(scratch[:0], &events[j])
			e = e.message(2, scratch)
		}
	}
	return e
}

func appendEvent(b []byte, v *hook.Event) encoder {
	return encoder(b).uint(2, uint64(v.Kind)).fixed(3, uint64(v.At)).text(4, v.Key.Tenant).text(5, v.Key.SourceID).
		uint(6, uint64(v.Key.Index)).text(7, v.Key.Type).bytes(8, v.Hook[:]).uint(9, uint64(v.Attempt)).
		text(10, v.Reason).uint(11, uint64(v.Class)).uint(12, uint64(v.Status)).uint(13, uint64(v.Duration)).
		fixed(14, uint64(v.NextDue))
}

func decodeEvents(b []byte) (out []hook.Event, err error) {
	err = decode("events", b, func(f field) error {
		if f.num != 2 {
			return nil
		}
		var e hook.Event
		err := fields(f.b, func(f field) error { return eventField(f, &e) })
		out = append(out, e)
		return err
	})
	return out, err
}

func eventField(f field, e *hook.Event) error {
	switch f.num {
	case 2:
		e.Kind = hook.EventKind(f.v)
	case 3:
		e.At = hook.Timestamp(f.v)
	case 4:
		e.Key.Tenant = string(f.b)
	case 5:
		e.Key.SourceID = string(f.b)
	case 6:
		e.Key.Index = uint16(f.v)
	case 7:
		e.Key.Type = string(f.b)
	case 8:
		copy(e.Hook[:], f.b)
	case 9:
		e.Attempt = uint32(f.v)
	case 10:
		e.Reason = string(f.b)
	case 11:
		e.Class = hook.ErrorClass(f.v)
	case 12:
		e.Status = uint16(f.v)
	case 13:
		e.Duration = time.Duration(f.v)
	case 14:
		e.NextDue = hook.Timestamp(f.v)
	}
	return nil
}

// LogEntry is what one settle logged. At is its place in its partition: entries are found in the order of their
// transactions' start, so one that commits late can appear before one already seen, until it is Finality old.
type LogEntry struct {
	At     hook.Timestamp
	Slot   uint8
	Events []hook.Event
}

// Events reads the log of a partition from a timestamp on, oldest bucket first, at most limit entries.
func (s *Store) Events(ctx context.Context, partition uint8, from hook.Timestamp, limit int) (out []LogEntry, err error) {
	family := partitionKey(partition, famEvent)
	within := family.all()
	within.From = append(append([]byte{}, family...), key(nil).u32(bucketOf(from))...)
	err = s.kv.View(ctx, func(r kv.Reader) error {
		for len(out) < limit {
			pairs, err := r.Scan(ctx, kv.Scan{Range: within, Limit: limit})
			if err != nil {
				return err
			}
			for _, p := range pairs {
				within.From = after(p.Key)
				if out, err = appendEntry(out, p, len(family), from); err != nil {
					return err
				}
			}
			if len(pairs) < limit {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read events of partition %d: %w", partition, err)
	}
	return out, nil
}

func appendEntry(out []LogEntry, p kv.Pair, prefix int, from hook.Timestamp) ([]LogEntry, error) {
	k := readKey(p.Key, prefix)
	k.u32()
	e := LogEntry{Slot: k.take(1)[0], At: k.ts()}
	if err := k.end(); err != nil || e.At < from {
		return out, err
	}
	var err error
	e.Events, err = decodeEvents(p.Value)
	return append(out, e), err
}

// DropEvents removes the logs and histories of all hours that ended before a timestamp.
func (s *Store) DropEvents(ctx context.Context, before hook.Timestamp) error {
	for p := range s.partitions {
		for _, family := range []byte{famEvent, famHistory} {
			from := partitionKey(uint8(p), family)
			to := partitionKey(uint8(p), family).u32(bucketOf(before))
			if err := s.kv.DropRange(ctx, kv.Range{From: from, To: to}); err != nil {
				return fmt.Errorf("drop events of partition %d: %w", p, err)
			}
		}
	}
	return nil
}
