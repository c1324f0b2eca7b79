package accept_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is an acceptor with all that it needs in the test's hands.
type bench struct {
	*accept.Acceptor
	registry *prometheus.Registry
	logs     *observer.ObservedLogs
	writer   *writer
	notifier *notifier
	shelf    *shelf
}

// writer keeps what is committed by dedupe key, and can fail, wait or panic before it.
type writer struct {
	mu      sync.Mutex
	before  func(batch []store.Incoming) error
	each    func(in store.Incoming) error
	keys    map[string]hook.ID
	batches [][]store.Incoming
}

// one is one of several writers that share what they keep.
type one struct {
	*writer
	running [256]atomic.Bool
}

func (o *one) Commit(ctx context.Context, p uint8, batch []store.Incoming) ([]store.Accepted, []hook.Group, error) {
	if !o.running[p].CompareAndSwap(false, true) {
		panic("two commits of a writer and partition at once")
	}
	defer o.running[p].Store(false)
	return o.writer.Commit(ctx, p, batch)
}

func (w *writer) Commit(ctx context.Context, p uint8, batch []store.Incoming) ([]store.Accepted, []hook.Group, error) {
	w.mu.Lock()
	before := w.before
	w.mu.Unlock()
	if before != nil {
		if err := before(batch); err != nil {
			return nil, nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	return w.keep(p, batch)
}

func (w *writer) keep(p uint8, batch []store.Incoming) ([]store.Accepted, []hook.Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]store.Accepted, len(batch))
	g := hook.Group{Partition: p, Start: 1}
	var kept []store.Incoming
	for i, in := range batch {
		key := in.Hook.Tenant + "/" + in.Hook.SourceID + "/" + in.Hook.DedupeKey
		first, taken := w.keys[key]
		switch {
		case w.each != nil && w.each(in) != nil:
			out[i].Err = w.each(in)
			continue
		case taken && in.Hook.DedupeKey != "":
			out[i].Duplicate = &first
		default:
			w.keys[key] = in.Hook.ID
			g.Key, g.Hooks = in.Bindings[0].Key, append(g.Hooks, in.Hook.ID)
		}
		kept = append(kept, in)
	}
	w.batches = append(w.batches, kept)
	return out, []hook.Group{g}, nil
}

func (w *writer) fail(before func([]store.Incoming) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

func (w *writer) hooks() (all []*hook.Hook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.batches {
		for _, in := range b {
			all = append(all, in.Hook)
		}
	}
	return all
}

type notifier struct {
	mu        sync.Mutex
	named     map[hook.ID]bool
	uncertain []store.Binding
	full      bool
}

func (n *notifier) Committed(groups []hook.Group) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range groups {
		for _, id := range g.Hooks {
			n.named[id] = true
		}
	}
}

func (n *notifier) Uncertain(_ uint8, list []store.Binding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uncertain = append(n.uncertain, list...)
}

func (n *notifier) Full() bool { return n.full }

type shelf struct {
	mu      sync.Mutex
	sources map[string]*source.Source
	err     error
}

func (s *shelf) Source(_ context.Context, owner, name string) (*source.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src := s.sources[source.ID(owner, name)]; src != nil || s.err != nil {
		return src, s.err
	}
	return nil, store.ErrSourceNotFound
}

func (s *shelf) put(src *source.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[src.ID()] = src
}

func plain(tenant, name string) *source.Source {
	s := source.New(tenant, name)
	s.Verify.Type, s.Sinks, s.Incarnation, s.Revision = source.VerifyNone, []source.Sink{{Type: source.SinkLog}}, 7, 1
	return s
}

func deduping(name string) *source.Source {
	s := plain("default", name)
	s.Dedupe = &source.Dedupe{Header: "x-id", TTL: time.Hour}
	return s
}

func setUp(t testing.TB, c accept.Config, sources ...*source.Source) *bench {
	core, logs := observer.New(zapcore.DebugLevel)
	b := &bench{
		registry: prometheus.NewRegistry(), logs: logs,
		writer:   &writer{keys: map[string]hook.ID{}},
		notifier: &notifier{named: map[hook.ID]bool{}},
		shelf:    &shelf{sources: map[string]*source.Source{}},
	}
	for _, s := range sources {
		b.shelf.put(s)
	}
	writers := make([]accept.Writer, c.CommitsInFlight)
	for i := range writers {
		writers[i] = &one{writer: b.writer}
	}
	b.Acceptor = accept.New(c, accept.Deps{
		Sources: b.shelf, Writers: writers, Notifier: b.notifier, Metrics: b.registry, Log: zap.New(core),
		Partition: func(tenant string, part uint32) uint8 { return uint8(len(tenant)) + uint8(part) },
	})
	t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
	return b
}

func (b *bench) post(ctx context.Context, name, body string, headers ...hook.Header) accept.Result {
	t, refused := b.Find(ctx, "", name)
	if refused.Kind != 0 {
		return refused
	}
	return b.Accept(ctx, t, headers, []byte(body), time.Now())
}

func id(v string) hook.Header { return hook.Header{Name: "X-Id", Value: v} }

func (b *bench) counted(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := b.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}
