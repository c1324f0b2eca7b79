package store

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// ErrHookNotFound: nothing is known of the hook, or not any more.
var ErrHookNotFound = errors.New("hook not found")

// History is what is known of one delivery.
type History struct {
	Key hook.SinkKey
	// Kind is what the last settlement did; zero where no attempt has ended yet.
	Kind hook.Next
	// At is when it did.
	At hook.Timestamp
	// Due of the row, where Kind is hook.Again.
	Due    hook.Timestamp
	Reason string
	Class  hook.ErrorClass
	State  hook.State
}

// Lookup is what is known of a hook.
type Lookup struct {
	SourceID   string
	ReceivedAt int64
	Deliveries []History // by sink
}

func encodeHistory(s *hook.Settlement, at hook.Timestamp) []byte {
	v := &s.Verdict
	return appendState(newValue(128), at, &v.State).
		text(rowReason, v.Reason).uint(rowClass, uint64(v.Class)).
		message(rowSinkKey, encoder(nil).text(2, s.Delivery.Key.SourceID).text(3, s.Delivery.Key.Type)).
		uint(rowKind, uint64(v.Kind)).fixed(rowDue, uint64(v.Due))
}

func decodeHistory(b []byte, h *History) error {
	return decode("history", b, func(f field) error {
		switch f.num {
		case rowVersion:
			h.At = hook.Timestamp(f.v)
		case rowReason:
			h.Reason = string(f.b)
		case rowClass:
			h.Class = hook.ErrorClass(f.v)
		case rowKind:
			h.Kind = hook.Next(f.v)
		case rowDue:
			h.Due = hook.Timestamp(f.v)
		case rowSinkKey:
			return sinkField(f.b, &h.Key)
		default:
			return stateField(f, &h.State)
		}
		return nil
	})
}

// sinkField reads what a value holds of a sink key.
func sinkField(b []byte, k *hook.SinkKey) error {
	return fields(b, func(f field) error {
		switch f.num {
		case 2:
			k.SourceID = string(f.b)
		case 3:
			k.Type = string(f.b)
		}
		return nil
	})
}

// LookupHook finds a hook of a tenant. It looks into every partition, since a source may be spread.
func (s *Store) LookupHook(ctx context.Context, tenant string, id hook.ID) (out Lookup, err error) {
	err = s.kv.View(ctx, func(r kv.Reader) error {
		out = Lookup{ReceivedAt: id.Millis()}
		if err := s.lookupStored(ctx, r, tenant, id, &out); err != nil {
			return err
		}
		for p := range s.partitions {
			if err := lookupHistory(ctx, r, uint8(p), tenant, id, &out); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && len(out.Deliveries) == 0 {
		err = ErrHookNotFound
	}
	if err != nil {
		return out, fmt.Errorf("look up hook %s: %w", id, err)
	}
	sort.Slice(out.Deliveries, func(i, j int) bool { return out.Deliveries[i].Key.Index < out.Deliveries[j].Key.Index })
	return out, nil
}

// lookupStored reads the sinks that the hook was committed with, where it still is in the store.
func (s *Store) lookupStored(ctx context.Context, r kv.Reader, tenant string, id hook.ID, out *Lookup) error {
	keys := make([][]byte, s.partitions)
	for p := range keys {
		keys[p] = hookKey(uint8(p), tenant, id)
	}
	values, err := r.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	for _, v := range values {
		if v == nil {
			continue
		}
		h, err := decodeHook(tenant, id, v)
		if err != nil {
			return err
		}
		out.SourceID, out.ReceivedAt = h.SourceID, h.ReceivedAt
		for _, b := range h.sinks {
			out.Deliveries = append(out.Deliveries, History{Key: b.Key})
		}
	}
	return nil
}

// lookupHistory lays what settlements recorded over it.
func lookupHistory(ctx context.Context, r kv.Reader, partition uint8, tenant string, id hook.ID, out *Lookup) error {
	first := historyKey(partition, tenant, hook.Ref{Hook: id})
	prefix := key(first[:len(first)-2])
	pairs, err := r.Scan(ctx, kv.Scan{Range: prefix.all(), Limit: maxSinks})
	if err != nil {
		return err
	}
	for _, p := range pairs {
		k := readKey(p.Key, len(prefix))
		h := History{Key: hook.SinkKey{Tenant: tenant, Index: k.u16()}}
		if err := errors.Join(k.end(), decodeHistory(p.Value, &h)); err != nil {
			return fmt.Errorf("key %x: %w", p.Key, err)
		}
		out.SourceID = h.Key.SourceID
		out.put(h)
	}
	return nil
}

// maxSinks bounds the sinks of a source.
const maxSinks = 64

func (l *Lookup) put(h History) {
	for i := range l.Deliveries {
		if l.Deliveries[i].Key.Index == h.Key.Index {
			l.Deliveries[i] = h
			return
		}
	}
	l.Deliveries = append(l.Deliveries, h)
}
