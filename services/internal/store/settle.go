package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// Settled tells when a batch was settled.
type Settled struct {
	// Start is the version of the rows that were written.
	Start hook.Timestamp
}

// settler is the state of one slot.
type settler struct {
	mu         sync.Mutex
	counters   map[keyPart]counter
	unresolved *settlement
}

type keyPart struct {
	partition uint8
	key       hook.SinkKey
}

// NotWritten says that a settle that failed with the error wrote nothing, and will not.
func NotWritten(err error) bool {
	if errors.Is(err, kv.ErrUndetermined) || errors.Is(err, errUnresolved) {
		return false
	}
	return errors.Is(err, errNotBegun) || errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrBound) ||
		errors.Is(err, kv.ErrTooLarge) || errors.Is(err, ErrDeposed)
}

// errNotBegun: what the settle reads could not be read, or not be made sense of.
var errNotBegun = errors.New("not begun")

// errUnresolved: the fate of an earlier settle of the slot is still unknown.
var errUnresolved = errors.New("fate of the settle before is unknown")

// Settle commits what became of rows that one slot guards, all or none. After an error for which NotWritten is false it
// must be repeated with the same batch until it succeeds: what has landed unseen is not done twice. Calls for one slot
// wait for each other.
func (l *Leader) Settle(ctx context.Context, slot Slot, batch []hook.Settlement) (Settled, error) {
	s := &l.slots[int(slot.Partition)*FenceSlots+int(slot.Index)]
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.unresolved
	if err := l.resolve(ctx, slot, s); err != nil {
		return Settled{}, fmt.Errorf("%w: %w", errUnresolved, err)
	}
	if before != nil && before.landed && sameRows(before.batch, batch) {
		return Settled{Start: before.start}, nil
	}
	for tries := 1; ; tries++ {
		a := &settlement{leader: l, slot: slot, settler: s, batch: batch}
		_, err := l.store.kv.Update(ctx, kv.UpdateOptions{Bound: CommitBound}, func(t kv.Txn) error { return a.run(ctx, t) })
		if err == nil {
			s.remember(a.counters)
			return Settled{Start: a.start}, nil
		}
		if !a.ran {
			return Settled{}, fmt.Errorf("settle %d rows of slot %v: %w: %w", len(batch), slot, errNotBegun, err)
		}
		if errors.Is(err, kv.ErrUndetermined) || ctx.Err() != nil {
			s.unresolved = a
			if l.resolve(ctx, slot, s) == nil && a.landed {
				return Settled{Start: a.start}, nil
			}
			if s.unresolved != nil {
				err = fmt.Errorf("%w: %w", errUnresolved, err)
			} else {
				err = fmt.Errorf("%w: did not land: %v", kv.ErrUnavailable, err) // its fate is known, so that ErrUndetermined is left out
			}
			return Settled{}, fmt.Errorf("settle %d rows of slot %v: %w", len(batch), slot, err)
		}
		if tries >= attempts || !errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrBound) {
			return Settled{}, fmt.Errorf("settle %d rows of slot %v: %w", len(batch), slot, err)
		}
	}
}

func sameRows(a, b []hook.Settlement) bool {
	return slices.EqualFunc(a, b, func(x, y hook.Settlement) bool {
		return x.Delivery.Ref() == y.Delivery.Ref() && x.Delivery.Version == y.Delivery.Version
	})
}

// resolve finds out what became of the last settle: one counter that it wrote tells.
func (l *Leader) resolve(ctx context.Context, slot Slot, s *settler) (err error) {
	a := s.unresolved
	if a == nil {
		return nil
	}
	s.counters = nil
	for kp, want := range a.counters {
		if a.landed, err = l.store.counted(ctx, counterKey(kp.partition, kp.key, nil), want); err != nil {
			return err
		}
		break
	}
	if a.landed {
		s.remember(a.counters)
	}
	s.unresolved = nil
	return nil
}

func (s *settler) remember(counters map[keyPart]counter) {
	if s.counters == nil || len(s.counters) > maxCounters {
		s.counters = make(map[keyPart]counter, len(counters))
	}
	for kp, c := range counters {
		s.counters[kp] = c
	}
}

// settlement is one try at a batch of settlements.
type settlement struct {
	leader  *Leader
	slot    Slot
	settler *settler
	batch   []hook.Settlement

	start       hook.Timestamp
	ran         bool // the closure came to its end, so that the commit was tried
	counters    map[keyPart]counter
	obligations map[string]uint64
	landed      bool
}

// run reads the fence (against a later leader), the obligations that it changes (against others that add or remove
// one) and the counters that it does not know, then writes. Hooks with one obligation go blindly.
func (a *settlement) run(ctx context.Context, t kv.Txn) error {
	r := &reads{at: make(map[string]int)}
	fence := fenceKey(a.slot)
	r.add(fence)
	for i := range a.batch {
		d := &a.batch[i].Delivery
		if d.Sinks > 1 {
			r.add(obligationKey(d.Partition, d.Key.Tenant, d.Hook))
		}
		if _, known := a.settler.counters[keyPart{d.Partition, d.Key}]; !known {
			r.add(counterKey(d.Partition, d.Key, nil))
		}
	}
	var err error
	if r.values, err = t.BatchGet(ctx, r.keys); err != nil {
		return err
	}
	if err := a.leader.hold(t, a.slot, r.get(fence)); err != nil {
		return err
	}
	a.start, a.counters, a.obligations = t.Timestamp(), make(map[keyPart]counter), make(map[string]uint64)
	w := &puts{txn: t}
	for i := range a.batch {
		if err := a.settle(r, w, &a.batch[i]); err != nil {
			return fmt.Errorf("hook %s: %w", a.batch[i].Delivery.Hook, err)
		}
	}
	a.ran = true
	return a.record(w)
}

// record writes the counters, and the log of events where it is kept.
func (a *settlement) record(w *puts) error {
	for kp, c := range a.counters {
		w.put(counterKey(kp.partition, kp.key, nil), c.encode())
	}
	if a.leader.o.History {
		w.put(eventKey(a.slot.Partition, a.start, a.slot.Index), encodeEvents(a.batch, a.start))
	}
	return w.err
}

func (a *settlement) settle(r *reads, w *puts, s *hook.Settlement) error {
	d := &s.Delivery
	c, err := a.counter(r, d)
	if err != nil {
		return err
	}
	w.delete(rowKey(&d.Row))
	if d.Waits() {
		w.delete(dueKey(&d.Row))
	}
	switch s.Verdict.Kind {
	case hook.Again:
		a.again(w, s)
	case hook.Bury:
		a.bury(w, s)
		c.dead++
		c.rows++
	case hook.Complete, hook.Discard:
		c.rows++
		if err := a.release(r, w, d); err != nil {
			return err
		}
	default:
		return fmt.Errorf("verdict %d cannot be settled", s.Verdict.Kind)
	}
	if s.Verdict.Kind != hook.Again {
		c.bytes += uint64(d.Size)
	}
	c.turns++
	c.position = max(c.position, s.Position)
	a.counters[keyPart{d.Partition, d.Key}] = c
	if a.leader.o.History {
		w.put(historyKey(d.Partition, d.Key.Tenant, d.Ref()), encodeHistory(s, a.start))
	}
	return w.err
}

// again writes the row with its next due time: a member where it stands, since its place is its lane's, and with it its
// wake-up. A scan of due rows finds that when nobody remembers the lane any more.
func (a *settlement) again(w *puts, s *hook.Settlement) {
	row := s.Delivery.Row
	row.Due = s.Verdict.Due
	w.put(rowKey(&row), encodeRow(&row, a.start, &s.Verdict.State))
	if row.Waits() {
		w.put(dueKey(&row), encodeWake(&row))
	}
}

func (a *settlement) counter(r *reads, d *hook.Delivery) (counter, error) {
	kp := keyPart{d.Partition, d.Key}
	if c, ok := a.counters[kp]; ok {
		return c, nil
	}
	if c, ok := a.settler.counters[kp]; ok {
		return c, nil
	}
	return decodeCounter(r.get(counterKey(d.Partition, d.Key, nil)))
}

func (a *settlement) bury(w *puts, s *hook.Settlement) {
	d := DeadLetter{Delivery: s.Delivery, At: a.start, Reason: s.Verdict.Reason, Class: s.Verdict.Class}
	d.State = s.Verdict.State
	w.put(deadKey(d.Partition, d.Key.Tenant, a.start, d.Ref()), encodeDead(&d, a.start))
	w.put(deadTimeKey(d.Partition, d.Key.Tenant, a.start, d.Ref()), newValue(0))
}

// release removes a delivery's claim on its hook, and with the last one the hook.
func (a *settlement) release(r *reads, w *puts, d *hook.Delivery) error {
	if d.Sinks > 1 {
		ok := obligationKey(d.Partition, d.Key.Tenant, d.Hook)
		bits, known := a.obligations[string(ok)]
		if !known {
			var err error
			if bits, err = decodeObligation(r.get(ok)); err != nil {
				return err
			}
		}
		bits &^= 1 << d.Key.Index
		a.obligations[string(ok)] = bits
		if bits != 0 {
			w.put(ok, encodeObligation(bits))
			return w.err
		}
		w.delete(ok)
	}
	w.delete(hookKey(d.Partition, d.Key.Tenant, d.Hook))
	for c := 1; c*chunkSize < int(d.Size); c++ {
		w.delete(bodyKey(d.Partition, d.Key.Tenant, d.Hook, c))
	}
	return w.err
}
