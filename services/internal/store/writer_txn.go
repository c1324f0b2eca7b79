package store

import (
	"context"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// attempt is one try at a batch: the transaction's closure and what it found. It reads in one batch get whatever
// decides, then writes. No key is locked: a dedupe key that two commits take is a conflict of puts, a source that is
// closed meanwhile waits out the bound of commits before it counts, and the counters have one writer.
type attempt struct {
	writer    *Writer
	part      *partWriter
	partition uint8
	batch     []Incoming

	result   []Accepted
	counters map[hook.SinkKey]counter
	groups   []hook.Group
	index    map[groupKey]int
	wrote    bool
	landed   bool
}

// groupKey: a batch may hold hooks from before and after a sink became ordered.
type groupKey struct {
	sink    hook.SinkKey
	ordered bool
}

type sourceName struct{ owner, name string }

// reads collects the keys that decide about a batch, each once.
type reads struct {
	keys   [][]byte
	at     map[string]int
	values [][]byte
}

func (r *reads) add(key []byte) {
	if _, ok := r.at[string(key)]; !ok {
		r.at[string(key)] = len(r.keys)
		r.keys = append(r.keys, key)
	}
}

func (r *reads) get(key []byte) []byte { return r.values[r.at[string(key)]] }

func (a *attempt) run(ctx context.Context, t kv.Txn) error {
	r := &reads{at: make(map[string]int)}
	dedupes := make([][]byte, len(a.batch))
	guards := make(map[sourceName][]byte)
	for i := range a.batch {
		a.collect(r, &a.batch[i], guards, &dedupes[i])
	}
	var err error
	if r.values, err = t.BatchGet(ctx, r.keys); err != nil {
		return err
	}
	a.counters, a.index = make(map[hook.SinkKey]counter), make(map[groupKey]int)
	first := make(map[string]hook.ID)
	for i := range a.batch {
		in := &a.batch[i]
		if err := a.decide(r, t, in, i, guards[sourceName{in.Owner, in.Name}], dedupes[i], first); err != nil {
			return fmt.Errorf("hook %s: %w", in.Hook.ID, err)
		}
	}
	return a.count(t)
}

func (a *attempt) collect(r *reads, in *Incoming, guards map[sourceName][]byte, dedupe *[]byte) {
	name := sourceName{in.Owner, in.Name}
	if guards[name] == nil {
		guards[name] = guardKey(in.Owner, in.Name)
		r.add(guards[name])
	}
	if in.Hook.DedupeKey != "" {
		*dedupe = dedupeKey(a.partition, in.Hook.Tenant, in.Hook.SourceID, in.Hook.DedupeKey)
		r.add(*dedupe)
	}
	for i := range in.Bindings {
		if _, known := a.part.counters[in.Bindings[i].Key]; !known {
			r.add(counterKey(a.partition, in.Bindings[i].Key, a.writer.id[:]))
		}
	}
}

func (a *attempt) decide(r *reads, t kv.Txn, in *Incoming, i int, guard, dedupe []byte, first map[string]hook.ID) error {
	g, err := decodeGuard(r.get(guard))
	if err != nil {
		return err
	}
	if t.Timestamp() < g.closed || g.incarnation != in.Hook.Incarnation {
		a.result[i] = Accepted{Err: ErrSourceChanged}
		return nil
	}
	if dedupe != nil {
		if id, ok := first[string(dedupe)]; ok {
			a.result[i] = Accepted{Duplicate: &id}
			return nil
		}
		d, err := decodeDedupe(r.get(dedupe))
		if err != nil {
			return err
		}
		if d.expires > t.Timestamp() {
			a.result[i] = Accepted{Duplicate: &d.id}
			return nil
		}
		first[string(dedupe)] = in.Hook.ID
	}
	return a.write(r, t, in, i, dedupe)
}

func (a *attempt) write(r *reads, t kv.Txn, in *Incoming, i int, dedupe []byte) error {
	a.wrote = true
	start := t.Timestamp()
	w := puts{txn: t}
	if dedupe != nil {
		expires := start.Add(in.DedupeTTL)
		w.put(dedupe, encodeDedupe(dedupeValue{id: in.Hook.ID, expires: expires}))
		w.put(expiryKey(a.partition, bucketOf(expires)+1, dedupe), newValue(0))
	}
	putHook(&w, a.partition, in, start)
	for b := range in.Bindings {
		if err := a.row(r, &w, in, uint32(i), &in.Bindings[b], start); err != nil {
			return err
		}
	}
	return w.err
}

// puts keeps the first error of a run of puts.
type puts struct {
	txn kv.Txn
	err error
}

func (p *puts) put(key, value []byte) {
	if p.err == nil {
		p.err = p.txn.Put(key, value)
	}
}

func (p *puts) delete(key []byte) {
	if p.err == nil {
		p.err = p.txn.Delete(key)
	}
}

func putHook(w *puts, partition uint8, in *Incoming, start hook.Timestamp) {
	h := in.Hook
	w.put(hookKey(partition, h.Tenant, h.ID), encodeHook(h, start, in.Bindings))
	for c := 1; c*chunkSize < len(h.Body); c++ {
		w.put(bodyKey(partition, h.Tenant, h.ID, c), h.Body[c*chunkSize:min((c+1)*chunkSize, len(h.Body))])
	}
	if len(in.Bindings) > 1 {
		w.put(obligationKey(partition, h.Tenant, h.ID), encodeObligation(allSinks(in.Bindings)))
	}
}

func (a *attempt) row(r *reads, w *puts, in *Incoming, member uint32, b *Binding, start hook.Timestamp) error {
	row := hook.Row{
		Partition: a.partition, Key: b.Key, Hook: in.Hook.ID, Due: start, Version: start,
		Ordered: b.Ordered, Lane: b.Lane, Place: hook.Place{Start: start, Index: member},
	}
	state := hook.State{
		Incarnation: in.Hook.Incarnation, Size: uint32(in.Hook.StoredSize()), Sinks: uint16(len(in.Bindings)),
	}
	w.put(rowKey(&row), encodeRow(&row, start, &state))
	c, ok := a.counters[b.Key]
	if !ok {
		if c, ok = a.part.counters[b.Key]; !ok {
			var err error
			if c, err = decodeCounter(r.get(counterKey(a.partition, b.Key, a.writer.id[:]))); err != nil {
				return err
			}
		}
	}
	c.rows++
	c.bytes += uint64(state.Size)
	c.ordered = c.ordered || b.Ordered
	a.counters[b.Key] = c
	a.group(&row)
	return w.err
}

func (a *attempt) group(row *hook.Row) {
	at := groupKey{row.Key, row.Ordered}
	i, ok := a.index[at]
	if !ok {
		i = len(a.groups)
		a.index[at] = i
		a.groups = append(a.groups, hook.Group{Partition: row.Partition, Key: row.Key, Start: row.Due, Ordered: row.Ordered})
	}
	g := &a.groups[i]
	g.Hooks = append(g.Hooks, row.Hook)
	if row.Ordered {
		g.Lanes = append(g.Lanes, row.Lane)
		g.Members = append(g.Members, row.Place.Index)
	}
}

func (a *attempt) count(t kv.Txn) error {
	for key, c := range a.counters {
		if err := t.Put(counterKey(a.partition, key, a.writer.id[:]), c.encode()); err != nil {
			return err
		}
	}
	return nil
}

// remember keeps the counters of a commit that landed.
func (a *attempt) remember() {
	if a.part.counters == nil || len(a.part.counters) > maxCounters {
		a.part.counters = make(map[hook.SinkKey]counter, len(a.counters))
	}
	for key, c := range a.counters {
		a.part.counters[key] = c
	}
}
