// Package seed fills stores for benchmarks. It writes through the same operations as ingest and leader do, many rows at a
// time, so that what it leaves is what they would have left.
package seed

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// batch bounds the rows of one transaction.
const batch = 2000

// bodyBytes is the size of every hook's body. Nobody reads them: it only has to be small, so that a million hooks fit
// on any disk.
const bodyBytes = 64

// Seeder writes to one store that no scheduler has open. It is safe for concurrent use.
type Seeder struct {
	store  *store.Store
	writer *store.Writer
	lease  store.Lease
	leader *store.Leader
	body   []byte
	first  [8]byte // of every hook's id
	made   atomic.Uint64
}

// New takes the leader's lease.
func New(ctx context.Context, s *store.Store) (*Seeder, error) {
	out := &Seeder{store: s, body: make([]byte, bodyBytes)}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	out.writer = s.NewWriter(id)
	copy(out.first[:], id[:])
	binary.BigEndian.PutUint64(out.first[:], uint64(time.Now().UnixMilli())<<16|0x7000|uint64(id[0]))
	seen, err := s.LeaderLease(ctx)
	if err != nil {
		return nil, err
	}
	if out.lease, err = s.TakeLease(ctx, seen, id); err != nil {
		return nil, err
	}
	out.leader, err = s.Lead(ctx, out.lease, store.LeaderOptions{})
	return out, err
}

// Close gives the lease back.
func (s *Seeder) Close(ctx context.Context) error { return s.store.ReleaseLease(ctx, s.lease) }

// Source makes a source with one log sink, which every tenant can use.
func (s *Seeder) Source(ctx context.Context, name string, ordered bool) (*source.Source, error) {
	in := source.New(hook.DefaultTenant, name)
	in.Sinks = []source.Sink{{Type: source.SinkLog, Ordered: ordered}}
	return s.store.CreateSource(ctx, in)
}

// Rows says which rows are made.
type Rows struct {
	Source *source.Source
	// Tenants each get the same number of rows, in turns.
	Tenants []string
	Each    int
	// Lanes, where the source is ordered, is the number of lanes that a tenant's rows go to in turns.
	Lanes int
	// Then is what becomes of them; nil leaves them as ingest does.
	Then Fate
}

// Fate decides about one row.
type Fate func(*hook.Settlement)

// Delivered settles rows as delivered.
func Delivered(s *hook.Settlement) {
	s.Verdict = hook.Verdict{Kind: hook.Complete, State: s.Delivery.State}
}

// Failed is a first attempt that failed, with the next one due after a pause.
func Failed(pause time.Duration) Fate {
	return func(s *hook.Settlement) {
		state := s.Delivery.State
		state.Attempts, state.FirstAttemptAt = 1, s.Claimed
		state.History = []hook.Attempt{{Number: 1, At: s.Claimed, Class: hook.Transient, Status: 503, Reason: "http: status 503"}}
		s.Verdict = hook.Verdict{Kind: hook.Again, Due: s.Claimed.Add(pause), State: state}
	}
}

// Add writes rows, the partitions side by side.
func (s *Seeder) Add(ctx context.Context, r Rows) error {
	parts := make([][]string, s.store.Partitions())
	for _, t := range r.Tenants {
		p := s.store.Partition(t, 0)
		parts[p] = append(parts[p], t)
	}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for p, tenants := range parts {
		if len(tenants) > 0 {
			all.Go(func() { errs[p] = s.part(ctx, uint8(p), tenants, &r) })
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("seed %d rows for each of %d tenants: %w", r.Each, len(r.Tenants), err)
	}
	return nil
}

func (s *Seeder) part(ctx context.Context, partition uint8, tenants []string, r *Rows) error {
	total := r.Each * len(tenants)
	for from := 0; from < total; from += batch {
		list := make([]store.Incoming, min(batch, total-from))
		for i := range list {
			n := from + i
			list[i] = s.incoming(r, tenants[n%len(tenants)], n/len(tenants))
		}
		if err := s.commit(ctx, partition, list, r); err != nil {
			return err
		}
	}
	return nil
}

// incoming is the nth hook of a tenant.
func (s *Seeder) incoming(r *Rows, tenant string, n int) store.Incoming {
	h := &hook.Hook{
		ID: s.id(), Tenant: tenant, SourceID: r.Source.ID(), Incarnation: r.Source.Incarnation,
		ReceivedAt: time.Now().UnixMilli(), Body: s.body,
	}
	in := store.Incoming{Hook: h, Owner: r.Source.Tenant, Name: r.Source.Name}
	for _, b := range r.Source.Bindings(tenant, h) {
		bound := store.Binding{Key: b.Key, Ordered: b.Ordered}
		if b.Ordered {
			bound.Lane = fmt.Sprintf("lane-%d", n%max(1, r.Lanes))
		}
		in.Bindings = append(in.Bindings, bound)
	}
	return in
}

// id is above every earlier one.
func (s *Seeder) id() (id hook.ID) {
	copy(id[:], s.first[:])
	binary.BigEndian.PutUint64(id[8:], 1<<63|s.made.Add(1))
	return id
}

func (s *Seeder) commit(ctx context.Context, partition uint8, list []store.Incoming, r *Rows) error {
	accepted, groups, err := s.writer.Commit(ctx, partition, list)
	if err != nil {
		return err
	}
	for i := range accepted {
		if accepted[i].Err != nil {
			return fmt.Errorf("hook %s: %w", list[i].Hook.ID, accepted[i].Err)
		}
	}
	if r.Then == nil {
		return nil
	}
	return s.settle(ctx, groups, r)
}

// settle has the leader decide about all rows of some groups.
func (s *Seeder) settle(ctx context.Context, groups []hook.Group, r *Rows) error {
	slots := make(map[store.Slot][]hook.Settlement)
	for i := range groups {
		g := &groups[i]
		slot := store.SlotOf(g.Partition, g.Key.Tenant)
		for n := range g.Hooks {
			slots[slot] = append(slots[slot], s.settlement(g, n, r))
		}
	}
	for slot, list := range slots {
		if _, err := s.leader.Settle(ctx, slot, list); err != nil {
			return err
		}
	}
	return nil
}

// settlement is the fate of the nth row of a group.
func (s *Seeder) settlement(g *hook.Group, n int, r *Rows) hook.Settlement {
	row := hook.Row{Partition: g.Partition, Key: g.Key, Hook: g.Hooks[n], Due: g.Start, Version: g.Start}
	if g.Ordered {
		row.Ordered, row.Lane, row.Place = true, g.Lanes[n], hook.Place{Start: g.Start, Index: g.Members[n]}
	}
	state := hook.State{Incarnation: r.Source.Incarnation, Size: bodyBytes, Sinks: 1}
	out := hook.Settlement{Delivery: hook.Delivery{Row: row, State: state}, Position: g.Start, Claimed: g.Start}
	r.Then(&out)
	return out
}
