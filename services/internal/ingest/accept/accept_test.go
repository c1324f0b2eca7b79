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

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

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

// TestL11_ADoubtAboutABatchAcrossAChangeOfOrderNamesBothKindsOfRows: each is looked for in a place of its own.
func TestL11_ADoubtAboutABatchAcrossAChangeOfOrderNamesBothKindsOfRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := accept.Default()
		c.CommitsInFlight = 1
		b := setUp(t, c, plain("default", "a"))
		calls := 0
		b.writer.fail(func([]store.Incoming) error {
			if calls++; calls == 1 {
				time.Sleep(5 * time.Second)
				return nil
			}
			return kv.ErrUndetermined
		})
		var wg sync.WaitGroup
		post := func() { wg.Go(func() { b.post(t.Context(), "a", "x") }) }
		post()
		synctest.Wait()
		post()
		synctest.Wait()
		ordered := plain("default", "a")
		ordered.Sinks[0].Ordered, ordered.Revision = true, 2
		b.shelf.put(ordered)
		time.Sleep(2 * time.Second)
		post()
		wg.Wait()
		key := hook.SinkKey{Tenant: "default", SourceID: "a", Type: "log"}
		require.Equal(t, []store.Binding{{Key: key}, {Key: key, Ordered: true}}, b.notifier.uncertain)
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestAHookWithoutAnOrderingKeyGoesToTheKeylessLaneAndCounts(t *testing.T) {
	const missing = "ankusa_dispatch_lane_key_missing_total"
	s := deduping("a")
	s.Sinks = []source.Sink{
		{Type: source.SinkHTTP, Ordered: true, OrderingKey: source.OrderingKey{Header: "x-entity"}},
		{Type: source.SinkLog, Ordered: true},
	}
	b := setUp(t, accept.Default(), s)
	for i, want := range []struct {
		id, lane string
		keyless  float64
	}{{"1", "e-1", 0}, {"2", "", 1}, {"2", "", 1}, {"3", "", 2}} {
		headers := []hook.Header{id(want.id)}
		if want.lane != "" {
			headers = append(headers, hook.Header{Name: "X-Entity", Value: want.lane})
		}
		r := b.post(t.Context(), "a", "x", headers...)
		require.Contains(t, []accept.Kind{accept.Committed, accept.Duplicate}, r.Kind)
		require.Equal(t, want.keyless, b.counted(t, missing, "sink", "http"), "request %d", i)
	}
	for i, batch := range b.writer.batches {
		bound := batch[0].Bindings
		require.True(t, bound[0].Ordered, "never unordered")
		require.Equal(t, []string{"e-1", "", "", ""}[i], bound[0].Lane)
		require.Empty(t, bound[1].Lane)
	}
	require.Zero(t, b.counted(t, missing, "sink", "log"), "a sink without a key misses none")
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
	b := setUp(t, accept.Default(), plain("default", "a"))
	b.writer.each = func(store.Incoming) error { return store.ErrSourceChanged }
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
		c.MaxBatch, c.MaxQueue, c.CommitTimeout, c.CommitsInFlight = 1, 10, time.Minute, 1
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
		c.MaxBatch, c.CommitsInFlight = 1, 1
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
