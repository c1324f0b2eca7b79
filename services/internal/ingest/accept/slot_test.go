package accept_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/store"
)

// alone has every hook committed alone, n at once.
func alone(n int) accept.Config {
	c := accept.Default()
	c.MaxBatch, c.CommitsInFlight = 1, n
	return c
}

func TestCommitsOfAPartitionRunAtOnceEachWithAWriterOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, alone(3), plain("default", "a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		var wg sync.WaitGroup
		for range 7 { // the writers panic where they are used for two at once
			wg.Go(func() { require.Equal(t, accept.Committed, b.post(t.Context(), "a", "x").Kind) })
		}
		wg.Wait()
		require.Equal(t, 3*time.Second, time.Since(began))
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestCommitsThatRunAtOnceKeepTheirHooksApart(t *testing.T) {
	c := accept.Default()
	c.MaxBatch, c.CommitsInFlight = 3, 4
	b := setUp(t, c, plain("default", "a"))
	var mu sync.Mutex
	answered := map[hook.ID]string{}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 50 {
				body := strconv.Itoa(i*1000 + n)
				r := b.post(t.Context(), "a", body)
				mu.Lock()
				answered[r.ID] = body
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	stored := map[hook.ID]string{}
	for _, h := range b.writer.hooks() {
		stored[h.ID] = string(h.Body)
	}
	require.Len(t, stored, 32*50)
	require.Equal(t, stored, answered)
}

func TestL09_EqualHooksAreNeverInTwoCommitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, alone(4), deduping("a"))
		b.writer.fail(func([]store.Incoming) error { time.Sleep(time.Second); return nil })
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() { b.post(t.Context(), "a", "x", id("same")) })
			wg.Go(func() { b.post(t.Context(), "a", "x", id("other "+strconv.Itoa(i))) })
		}
		wg.Wait()
		require.Equal(t, 3*time.Second, time.Since(began), "equal ones one after the other, the others beside them")
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestL11_OnlyTheSinksOfTheCommitInDoubtAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setUp(t, alone(2), plain("default", "a"), plain("default", "b"))
		b.writer.fail(func(batch []store.Incoming) error {
			time.Sleep(time.Second)
			if batch[0].Hook.SourceID == "a" {
				return kv.ErrUndetermined
			}
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "x").Kind) })
		wg.Go(func() { require.Equal(t, accept.Committed, b.post(t.Context(), "b", "x").Kind) })
		wg.Wait()
		require.Len(t, b.notifier.uncertain, 1)
		require.Equal(t, "a", b.notifier.uncertain[0].Key.SourceID)
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestASlotThatPanickedIsUsedAgain(t *testing.T) {
	b := setUp(t, alone(2), plain("default", "a"))
	b.writer.fail(func([]store.Incoming) error { panic("store") })
	for range 5 {
		require.Equal(t, accept.StoreUnavailable, b.post(t.Context(), "a", "x").Kind)
	}
	b.writer.fail(nil)
	require.Equal(t, accept.Committed, b.post(t.Context(), "a", "x").Kind)
	require.Len(t, b.writer.hooks(), 1)
}

func TestBodiesReceivedWholeShareTheBoundOfThoseThatAreRead(t *testing.T) {
	c := accept.Default()
	c.MaxReadingBytes = 64 << 10
	b := setUp(t, c)
	first, err := b.HoldBody(make([]byte, 60<<10))
	require.NoError(t, err)
	require.Len(t, first.Bytes, 60<<10)
	require.EqualValues(t, 52<<10, b.counted(t, "ankusa_ingest_reading_bytes"))
	refused, err := b.HoldBody(make([]byte, 30<<10))
	require.ErrorIs(t, err, accept.ErrNoRoom)
	refused.Release()
	small, err := b.HoldBody(make([]byte, 8<<10))
	require.NoError(t, err, "small ones go on")
	small.Release()
	first.Release()
	require.Zero(t, b.counted(t, "ankusa_ingest_reading_bytes"))
}
