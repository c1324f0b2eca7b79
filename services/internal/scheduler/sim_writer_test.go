package scheduler

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// simWriter behaves as an ingest does: it commits what its senders bring, finds out what became of it, and names it until
// somebody has taken it. Its time is that of the synctest bubble.
type simWriter struct {
	*faulty
	rnd      *rand.Rand
	writer   *store.Writer
	sequence uint64
	unnamed  []hook.Group
}

const lanes = 4

// write is the life of one writer.
func (f *faulty) write(ctx context.Context, who uint64) {
	st, _ := f.faultyStore(who)
	w := &simWriter{faulty: f, rnd: f.random(who)}
	w.writer = st.NewWriter(identity(w.rnd))
	for i := 0; i < 40 || w.operated(); i++ {
		time.Sleep(between(w.rnd, 0, 500*time.Millisecond))
		w.accept(ctx)
		if w.name(ctx) {
			w.unnamed = nil
		}
	}
	for !w.name(ctx) {
		time.Sleep(100 * time.Millisecond)
	}
}

// operated says whether the operator still acts.
func (f *faulty) operated() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acting
}

// accept commits a few hooks of one source and tenant.
func (w *simWriter) accept(ctx context.Context) {
	name, tenant := fmt.Sprintf("s%d", w.rnd.IntN(sources)), fmt.Sprintf("t%d", w.rnd.IntN(3))
	hooks := make([]*hook.Hook, 1+w.rnd.IntN(5))
	for i := range hooks {
		hooks[i] = w.hook(tenant)
	}
	src, err := w.store.Source(ctx, hook.DefaultTenant, name)
	if errors.Is(err, store.ErrSourceNotFound) {
		return // as its sender is told
	}
	require.NoError(w.t, err)
	batch := make([]store.Incoming, len(hooks))
	for i, h := range hooks {
		h.SourceID, h.Incarnation = src.ID(), src.Incarnation
		batch[i] = store.Incoming{Hook: h, Owner: src.Tenant, Name: src.Name, DedupeTTL: time.Hour}
		for _, b := range src.Bindings(tenant, h) {
			batch[i].Bindings = append(batch[i].Bindings, store.Binding{Key: b.Key, Ordered: b.Ordered, Lane: b.Lane})
		}
		w.received(&batch[i])
	}
	w.commit(ctx, w.store.Partition(tenant, 0), batch)
}

func (w *simWriter) hook(tenant string) *hook.Hook {
	h := &hook.Hook{Tenant: tenant, Body: []byte("body"), ReceivedAt: time.Now().UnixMilli()}
	id := identity(w.rnd)
	binary.BigEndian.PutUint64(id[:8], uint64(h.ReceivedAt)<<16|uint64(id[0]))
	h.ID = hook.ID(id)
	h.Headers = []hook.Header{{Name: "X-Lane", Value: fmt.Sprintf("l%d", w.rnd.IntN(lanes))}}
	return h
}

func (w *simWriter) commit(ctx context.Context, partition uint8, batch []store.Incoming) {
	accepted, groups, _ := w.writer.Commit(ctx, partition, batch)
	for i, a := range accepted {
		if a.Err == nil && a.Duplicate == nil {
			w.acknowledged(batch[i].Hook.ID)
		}
	}
	w.unnamed = append(w.unnamed, groups...)
	for ctx.Err() == nil {
		late, err := w.writer.Resolve(ctx, partition)
		w.unnamed = append(w.unnamed, late...)
		if err == nil {
			return
		}
	}
}

// name tells a leader; false when none took it in time.
func (w *simWriter) name(ctx context.Context) bool {
	w.sequence++
	c := wire.Committed{Sequence: w.sequence, Groups: w.unnamed}
	for _, n := range w.nodes {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := w.notifyOnce(ctx, n.node, &c)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

func (w *simWriter) notifyOnce(ctx context.Context, n *node, c *wire.Committed) error {
	stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Notify(ctx)
	if err != nil {
		return err
	}
	hello := wire.WriterHelloProto([]hook.RunID{w.writer.ID()})
	_ = stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: hello}})
	_ = stream.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c.Proto()}})
	for {
		ack, err := stream.Recv()
		if err != nil {
			return err
		}
		if ack.GetAcknowledged() >= c.Sequence {
			return nil
		}
	}
}
