package store

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/source"
)

// bench is a store in memory behind a port that can fail.
type bench struct {
	*Store
	t    *testing.T
	port *faultkv.Store
}

func newBench(t *testing.T, plan faultkv.Plan) *bench {
	inner, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inner.Close()) })
	opened, err := Open(t.Context(), inner, Options{})
	require.NoError(t, err)
	port := faultkv.New(inner, plan)
	opened.kv = port
	return &bench{Store: opened, t: t, port: port}
}

func random16() (id hook.RunID) {
	_, _ = rand.Read(id[:])
	return id
}

func (b *bench) source(name string, sinks int) *source.Source {
	src := source.New(hook.DefaultTenant, name)
	for range sinks {
		src.Sinks = append(src.Sinks, source.Sink{Type: source.SinkLog})
	}
	out, err := b.CreateSource(b.t.Context(), src)
	require.NoError(b.t, err)
	return out
}

// incoming is a hook of a source with a body.
func incoming(src *source.Source, tenant, dedupe string, body []byte) Incoming {
	id := uuid.Must(uuid.NewV7())
	h := &hook.Hook{
		ID: hook.ID(id), Tenant: tenant, SourceID: src.ID(), Incarnation: src.Incarnation, ReceivedAt: time.Now().UnixMilli(),
		DedupeKey: dedupe, Body: body, Headers: []hook.Header{{Name: "Content-Type", Value: "application/json"}},
	}
	in := Incoming{Hook: h, Owner: src.Tenant, Name: src.Name, DedupeTTL: time.Hour}
	for _, s := range src.Bindings(tenant, h) {
		in.Bindings = append(in.Bindings, Binding{Key: s.Key})
	}
	return in
}

// recorded is a writer past its first commit.
func (b *bench) recorded() *Writer {
	w := b.NewWriter(random16())
	w.recorded.Store(true)
	return w
}

func (b *bench) commit(w *Writer, batch ...Incoming) ([]Accepted, []hook.Group) {
	accepted, groups, err := w.Commit(b.t.Context(), b.Partition(batch[0].Hook.Tenant, 0), batch)
	require.NoError(b.t, err)
	return accepted, groups
}

// lead takes over and fences.
func (b *bench) lead() *Leader {
	seen, err := b.LeaderLease(b.t.Context())
	require.NoError(b.t, err)
	lease, err := b.TakeLease(b.t.Context(), seen, random16())
	require.NoError(b.t, err)
	leader, err := b.Lead(b.t.Context(), lease, LeaderOptions{History: true})
	require.NoError(b.t, err)
	return leader
}

// rows reads the deliveries of groups as the leader does.
func (b *bench) rows(groups []hook.Group) (out []hook.Delivery) {
	for _, g := range groups {
		if g.Ordered {
			out = append(out, b.members(g.Partition, g.Key)...)
			continue
		}
		out = append(out, b.due(g.Partition, g.Key)...)
	}
	return out
}

// due reads the due rows of a sink, wake-ups included.
func (b *bench) due(partition uint8, key hook.SinkKey) []hook.Delivery {
	page, err := b.ScanDue(b.t.Context(), DueScan{Partition: partition, Key: key, Limit: 1000})
	require.NoError(b.t, err)
	return page.Rows
}

// members reads the lane members of a sink, lane by lane.
func (b *bench) members(partition uint8, key hook.SinkKey) (out []hook.Delivery) {
	page, err := b.ScanLanes(b.t.Context(), LaneScan{Partition: partition, Key: key, Lanes: 1000, Members: 1000})
	require.NoError(b.t, err)
	require.False(b.t, page.More)
	for _, lane := range page.Lanes {
		out = append(out, lane.Rows...)
	}
	return out
}

func settled(d hook.Delivery, kind hook.Next) hook.Settlement {
	s := hook.Settlement{Delivery: d, Claimed: d.Due, Verdict: hook.Verdict{Kind: kind, State: d.State}}
	s.Verdict.State.FirstAttemptAt = d.Due
	if kind == hook.Bury {
		s.Verdict.Reason, s.Verdict.Class = "http: status 410", hook.ErrorPermanent
	}
	return s
}

func (b *bench) settle(l *Leader, all ...hook.Settlement) {
	d := all[0].Delivery
	_, err := l.Settle(b.t.Context(), SlotOf(d.Partition, d.Key.Tenant), all)
	require.NoError(b.t, err)
}

// keys lists every key of a family in all partitions.
func (b *bench) keys(family byte) (out []kv.Pair) {
	require.NoError(b.t, b.kv.View(b.t.Context(), func(r kv.Reader) error {
		for p := range b.partitions {
			pairs, err := r.Scan(context.Background(), kv.Scan{Range: partitionKey(uint8(p), family).all(), Limit: 10_000})
			if err != nil {
				return err
			}
			out = append(out, pairs...)
		}
		return nil
	}))
	return out
}

func (b *bench) outstanding() (n int64) {
	for p := range b.partitions {
		require.NoError(b.t, b.Outstanding(b.t.Context(), uint8(p), func(w Work) { n += w.Rows }))
	}
	return n
}
