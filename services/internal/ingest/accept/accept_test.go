package accept_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/kv"
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
	running map[uint8]bool
}

func (w *writer) Commit(ctx context.Context, p uint8, batch []store.Incoming) ([]store.Accepted, []store.Group, error) {
	w.mu.Lock()
	before := w.before
	if w.running[p] {
		panic("two commits of a partition at once")
	}
	w.running[p] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[p] = false
	}()
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

func (w *writer) keep(p uint8, batch []store.Incoming) ([]store.Accepted, []store.Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]store.Accepted, len(batch))
	g := store.Group{Partition: p, Start: 1}
	for i, in := range batch {
		key := in.Hook.Tenant + "/" + in.Hook.SourceID + "/" + in.Hook.DedupeKey
		first, taken := w.keys[key]
		switch {
		case w.each != nil && w.each(in) != nil:
			out[i].Err = w.each(in)
		case taken && in.Hook.DedupeKey != "":
			out[i].Duplicate = &first
		default:
			w.keys[key] = in.Hook.ID
			g.Key, g.Hooks = in.Bindings[0].Key, append(g.Hooks, in.Hook.ID)
		}
	}
	w.batches = append(w.batches, append([]store.Incoming(nil), batch...))
	return out, []store.Group{g}, nil
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

func (n *notifier) Committed(groups []store.Group) {
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
		writer:   &writer{keys: map[string]hook.ID{}, running: map[uint8]bool{}},
		notifier: &notifier{named: map[hook.ID]bool{}},
		shelf:    &shelf{sources: map[string]*source.Source{}},
	}
	for _, s := range sources {
		b.shelf.put(s)
	}
	b.Acceptor = accept.New(c, accept.Deps{
		Sources: b.shelf, Writer: b.writer, Notifier: b.notifier, Metrics: b.registry, Log: zap.New(core),
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

func TestAnAcceptedHookIsCommittedAsReceivedAndNamed(t *testing.T) {
	b := setUp(t, accept.Default(), deduping("a"))
	before := time.Now().UnixMilli()
	r := b.post(t.Context(), "a", "b\x00\xff", id("k"), hook.Header{Name: "Authorization", Value: "x"},
		hook.Header{Name: "Content-Type", Value: "text/x"}, hook.Header{Name: "Traceparent", Value: "00-1-2-3"},
		hook.Header{Name: "X-Ankusa-Id", Value: "forged"}, hook.Header{Name: "Content-Length", Value: "3"})
	require.Equal(t, accept.Committed, r.Kind)
	h := b.writer.hooks()[0]
	require.Equal(t, r.ID, h.ID)
	require.Equal(t, "b\x00\xff", string(h.Body))
	require.Equal(t, []hook.Header{id("k"), {Name: "Content-Type", Value: "text/x"}, {Name: "Traceparent", Value: "00-1-2-3"}}, h.Headers)
	require.Equal(t, "k", h.DedupeKey)
	require.EqualValues(t, 7, h.Incarnation)
	require.Equal(t, hook.Skipped, h.Verification)
	require.GreaterOrEqual(t, h.ReceivedAt, before)
	require.True(t, b.notifier.named[r.ID])
	require.Equal(t, 1.0, b.counted(t, "ankusa_ingest_requests_total", "source_id", "a", "outcome", "committed"))
}

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

func TestL01_I1_NoErrorOfTheStoreEverBecomesAnAcknowledgement(t *testing.T) {
	for _, cause := range []error{
		kv.ErrUnavailable, kv.ErrUndetermined, kv.ErrConflict, kv.ErrBound, kv.ErrNotFound, context.DeadlineExceeded,
		context.Canceled, errors.New("unheard of"), fmt.Errorf("wrapped: %w", kv.ErrUnavailable), io.EOF,
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			b := setUp(t, accept.Default(), plain("default", "a"))
			b.writer.fail(func([]store.Incoming) error { return cause })
			r := b.post(t.Context(), "a", "x")
			require.Equal(t, accept.StoreUnavailable, r.Kind)
			require.Zero(t, r.ID)
			require.Empty(t, b.notifier.named)
			require.True(t, b.FailedWithin(time.Minute))
			require.Equal(t, 1.0, b.counted(t, "ankusa_ingest_requests_total", "outcome", "store_unavailable"))
			entry := b.logs.FilterMessage("request not accepted").All()
			require.Len(t, entry, 1)
			require.Equal(t, zapcore.WarnLevel, entry[0].Level)
			b.writer.fail(nil)
			require.Equal(t, accept.Committed, b.post(t.Context(), "a", "x").Kind, "and work goes on")
		})
	}
}

func TestL01_OneHooksErrorIsNotTheOthers(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	b.writer.each = func(in store.Incoming) error {
		if string(in.Hook.Body) == "big" {
			return kv.ErrTooLarge
		}
		return nil
	}
	require.Equal(t, accept.PayloadTooLarge, b.post(t.Context(), "a", "big").Kind)
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "x").Kind)
}

func TestL01_APanicOfTheStoreIsAnAnswerToo(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	b.writer.fail(func([]store.Incoming) error { panic("store") })
	require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "x").Kind)
	require.Len(t, b.notifier.uncertain, 1, "and the leader is told to look")
	b.writer.fail(nil)
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "x").Kind)
}

func TestL09_AHundredEqualHooksAtOnceMakeOne(t *testing.T) {
	b := setUp(t, accept.Default(), deduping("a"))
	var mu sync.Mutex
	kinds, ids := map[accept.Kind]int{}, map[hook.ID]bool{}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			r := b.post(t.Context(), "a", "x", id("same"))
			mu.Lock()
			defer mu.Unlock()
			kinds[r.Kind]++
			ids[r.ID] = true
		})
	}
	wg.Wait()
	require.Equal(t, map[accept.Kind]int{accept.Committed: 1, accept.Duplicate: 99}, kinds)
	require.Len(t, ids, 1)
}

func TestL11_AfterAnUnknownFateTheRetryFindsTheFirst(t *testing.T) {
	b := setUp(t, accept.Default(), deduping("a"))
	b.writer.fail(func(batch []store.Incoming) error { // it lands, and nobody can tell
		_, _, _ = b.writer.keep(0, batch)
		return kv.ErrUndetermined
	})
	require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "x", id("k")).Kind)
	require.Equal(t, hook.SinkKey{Tenant: "default", SourceID: "a", Type: "log"}, b.notifier.uncertain[0].Key)
	first := b.writer.hooks()[0].ID
	b.writer.fail(nil)
	r := b.post(t.Context(), "a", "x", id("k"))
	require.Equal(t, accept.Duplicate, r.Kind)
	require.Equal(t, first, r.ID)
}

func TestAnUnknownFateStaysUnknownWhateverElseTheErrorSays(t *testing.T) {
	for _, cause := range []error{
		fmt.Errorf("%w: %w", kv.ErrUndetermined, kv.ErrUnavailable), fmt.Errorf("%w: %w", kv.ErrUnavailable, kv.ErrUndetermined),
		context.DeadlineExceeded, errors.New("unheard of"),
	} {
		b := setUp(t, accept.Default(), plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { return cause })
		b.post(t.Context(), "a", "x")
		require.Len(t, b.notifier.uncertain, 1, cause)
	}
}

func TestARefusedCommitLeavesNoDoubt(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	for _, cause := range []error{kv.ErrUnavailable, kv.ErrBound, kv.ErrConflict, kv.ErrTooLarge} {
		b.writer.fail(func([]store.Incoming) error { return cause })
		b.post(t.Context(), "a", "x")
	}
	require.Empty(t, b.notifier.uncertain)
}

func TestL19_TenantsThatShareASourceShareNoKey(t *testing.T) {
	c := accept.Default()
	c.TenantFromURL = true
	own := deduping("s")
	own.Tenant = "owner"
	b := setUp(t, c, deduping("shared"), own)
	post := func(tenant, name string) accept.Result {
		target, refused := b.Find(t.Context(), tenant, name)
		if refused.Kind != 0 {
			return refused
		}
		return b.Accept(t.Context(), target, []hook.Header{id("k")}, nil, time.Now())
	}
	require.Equal(t, accept.Committed, post("acme", "shared").Kind)
	require.Equal(t, accept.Committed, post("umbrella", "shared").Kind)
	require.Equal(t, accept.Duplicate, post("acme", "shared").Kind)
	h := b.writer.hooks()[0]
	require.Equal(t, "acme:shared:k", h.IdempotencyKey())
	require.Equal(t, accept.Committed, post("owner", "s").Kind)
	require.Equal(t, "owner:owner.s:k", b.writer.hooks()[3].IdempotencyKey())
	for _, foreign := range [][2]string{{"acme", "s"}, {"default", "s"}, {"", "shared"}, {"a.b", "shared"}, {"acme", "x/y"}, {"acme", ""}} {
		require.Equal(t, accept.UnknownSource, post(foreign[0], foreign[1]).Kind, foreign)
	}
}

func TestAnUnknownSourceIsToldFromAStoreThatCannotAnswer(t *testing.T) {
	b := setUp(t, accept.Default(), plain("acme", "a"))
	for _, name := range []string{"b", "", "acme.b", "a", "default.a", "acme.a.b", "ankusa:lifecycle", "%2e"} {
		require.Equal(t, accept.UnknownSource, b.post(t.Context(), name, "").Kind, name)
	}
	require.Equal(t, accept.Committed, b.post(t.Context(), "acme.a", "").Kind)
	b.shelf.err = kv.ErrUnavailable
	require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "c", "").Kind)
	require.Equal(t, 1.0, b.counted(t, "ankusa_ingest_refused_total", "reason", "store_unavailable"))
}

func TestL46_NoStrangerMintsASeries(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "").Kind)
	before, err := testutil.GatherAndCount(b.registry)
	require.NoError(t, err)
	for i := range 500 {
		b.post(t.Context(), fmt.Sprint("made-up-", i), "")
	}
	after, err := testutil.GatherAndCount(b.registry)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestADeletedSourceTakesItsSeriesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, accept.Default(), plain("default", "a"))
		b.post(t.Context(), "a", "")
		require.NotZero(t, b.counted(t, "ankusa_ingest_requests_total", "source_id", "a", "outcome", "committed"))
		changed := plain("default", "a")
		changed.Revision = 2
		b.shelf.put(changed)
		time.Sleep(2 * time.Second)
		b.post(t.Context(), "a", "")
		require.Equal(t, 2.0, b.counted(t, "ankusa_ingest_requests_total", "source_id", "a", "outcome", "committed"), "a change keeps them")
		delete(b.shelf.sources, "a")
		time.Sleep(2 * time.Second)
		b.post(t.Context(), "a", "")
		require.Zero(t, b.counted(t, "ankusa_ingest_requests_total", "source_id", "a"))
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestASourceThatChangedInTheStoreIsJudgedAnew(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "").Kind)
	again := plain("default", "a")
	again.Incarnation, again.Revision = 8, 9
	b.writer.each = func(in store.Incoming) error {
		if in.Hook.Incarnation != 8 {
			return store.ErrSourceChanged
		}
		return nil
	}
	b.shelf.put(again)
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "", id("k")).Kind)
	delete(b.shelf.sources, "a")
	b.writer.each = func(store.Incoming) error { return store.ErrSourceChanged }
	require.Equal(t, accept.UnknownSource, b.post(t.Context(), "a", "").Kind)
}

func TestASourceInDeletionTakesNothingAndSendsNobodyAway(t *testing.T) {
	s := plain("default", "a")
	s.Closed = true
	b := setUp(t, accept.Default(), s)
	require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "").Kind)
	require.Empty(t, b.writer.hooks())
}

func TestAFailedVerificationStoresNothing(t *testing.T) {
	s := plain("default", "a")
	s.Verify = source.Verify{Type: source.VerifyGitHub, Secrets: []source.Secret{source.NewSecret("hunter2")}}
	b := setUp(t, accept.Default(), s)
	r := b.post(t.Context(), "a", "payload-text", hook.Header{Name: "X-Hub-Signature-256", Value: "sha256=aa"})
	require.Equal(t, accept.VerificationFailed, r.Kind)
	require.Equal(t, "no_match", r.Reason)
	require.Empty(t, b.writer.hooks())
	require.Equal(t, 1.0, b.counted(t, "ankusa_verify_failures_total", "source_id", "a", "provider", "github", "scheme", "hmac_sha256"))
	for _, e := range b.logs.All() {
		text := fmt.Sprint(e.Message, e.ContextMap())
		require.NotContains(t, text, "payload-text", "L48")
		require.NotContains(t, text, "hunter2", "L48")
	}
}

func TestOverloadIsRefusedAtOnceAndWhatWaitsIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := accept.Default()
		c.MaxBatch, c.MaxQueue = 2, 5
		b := setUp(t, c, plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(time.Second); return nil })
		var mu sync.Mutex
		kinds := map[accept.Kind]int{}
		var wg sync.WaitGroup
		for range 9 {
			wg.Go(func() {
				r := b.post(t.Context(), "a", "x")
				mu.Lock()
				defer mu.Unlock()
				kinds[r.Kind]++
			})
		}
		synctest.Wait()
		mu.Lock()
		require.Equal(t, map[accept.Kind]int{accept.Overload: 4}, kinds)
		mu.Unlock()
		wg.Wait()
		require.Equal(t, map[accept.Kind]int{accept.Overload: 4, accept.Committed: 5}, kinds)
		require.Equal(t, 4.0, b.counted(t, "ankusa_load_shed_total"))
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestAHookThatWaitedPastItsStartDeadlineIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := accept.Default()
		c.MaxBatch, c.MaxQueue, c.CommitTimeout = 1, 10, time.Minute
		b := setUp(t, c, plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(16 * time.Second); return nil })
		var wg sync.WaitGroup
		wg.Go(func() { require.Equal(t, accept.Committed, b.post(t.Context(), "a", "1").Kind) })
		synctest.Wait()
		wg.Go(func() { require.Equal(t, accept.Overload, b.post(t.Context(), "a", "2").Kind) })
		wg.Wait()
		require.Len(t, b.writer.hooks(), 1)
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestAStuckCommitEndsAndItsFateIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := accept.Default()
		b := setUp(t, c, plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(time.Minute); return nil })
		began := time.Now()
		require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "1").Kind)
		require.Equal(t, time.Minute, time.Since(began), "the writer heeds its context; this one does not")
		require.Len(t, b.notifier.uncertain, 1)
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestASenderThatLeavesIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := accept.Default()
		c.MaxBatch = 1
		b := setUp(t, c, plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(time.Second); return nil })
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { require.Equal(t, accept.Committed, b.post(t.Context(), "a", "1").Kind) })
		synctest.Wait()
		wg.Go(func() { require.Equal(t, accept.Gone, b.post(ctx, "a", "2").Kind) })
		synctest.Wait()
		leave()
		wg.Wait()
		require.NoError(t, b.Close(t.Context()))
		require.Len(t, b.writer.hooks(), 1)
	})
}

func TestNothingMoreIsTakenThanTheNotifierCanRemember(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	b.notifier.full = true
	require.Equal(t, accept.Overload, b.post(t.Context(), "a", "").Kind)
	require.Empty(t, b.writer.hooks())
}

func TestAfterCloseEveryRequestIsRefused(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"), plain("acme", "b"))
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "").Kind)
	require.NoError(t, b.Close(t.Context()))
	require.Equal(t, accept.Overload, b.post(t.Context(), "a", "").Kind)
	require.Equal(t, accept.Overload, b.post(t.Context(), "acme.b", "").Kind, "of a partition that was never used, too")
}

func TestIDsAreUUIDsOfVersionSevenAndRise(t *testing.T) {
	b := setUp(t, accept.Default(), plain("default", "a"))
	var last string
	for range 2000 {
		r := b.post(t.Context(), "a", "")
		text := r.ID.String()
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, text)
		require.Greater(t, text, last)
		last = text
	}
	require.WithinDuration(t, time.Now(), time.UnixMilli(b.post(t.Context(), "a", "").ID.Millis()), 5*time.Second)
}

func TestABodyIsReadWithinTheCapWhateverItAnnounces(t *testing.T) {
	c := accept.Default()
	c.MaxBodyBytes, c.MaxReadingBytes = 100_000, 1<<20
	b := setUp(t, c)
	for _, size := range []int{0, 1, 511, 8191, 8192, 8193, 99_999, 100_000, 100_001, 500_000} {
		text := bytes.Repeat([]byte("x"), size)
		for _, announced := range []int64{-1, int64(size)} {
			for name, r := range map[string]io.Reader{
				"whole": bytes.NewReader(text), "by bytes": iotest.OneByteReader(bytes.NewReader(text)),
				"data with end": iotest.DataErrReader(bytes.NewReader(text)),
			} {
				body, err := b.ReadBody(r, announced, nil)
				if size > c.MaxBodyBytes {
					require.ErrorIs(t, err, accept.ErrBodyTooLarge, "L30 %d %s", size, name)
				} else {
					require.NoError(t, err)
					require.Equal(t, text, append([]byte{}, body.Bytes...), name)
				}
				body.Release()
			}
		}
	}
	require.Zero(t, b.counted(t, "ankusa_ingest_reading_bytes"))
}

func TestMemoryForBodiesFollowsWhatCameNotWhatWasAnnounced(t *testing.T) {
	b := setUp(t, accept.Default())
	body, err := b.ReadBody(iotest.ErrReader(io.ErrUnexpectedEOF), 8_000_000, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, cap(body.Bytes), 8<<10)
}

func TestAllBodiesTogetherHaveABound(t *testing.T) {
	c := accept.Default()
	c.MaxReadingBytes = 64 << 10
	b := setUp(t, c)
	first, err := b.ReadBody(strings.NewReader(strings.Repeat("x", 40<<10)), -1, nil)
	require.NoError(t, err)
	_, err = b.ReadBody(strings.NewReader(strings.Repeat("x", 40<<10)), -1, nil)
	require.ErrorIs(t, err, accept.ErrNoRoom)
	small, err := b.ReadBody(strings.NewReader("x"), 1, nil)
	require.NoError(t, err, "small ones go on")
	small.Release()
	first.Release()
}
