package ferry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ankusa.dev/ferry"
)

func TestCloseRunsWhatIsQueuedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{}, byFields(small(2))
		c.MaxWait = time.Hour
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 1, lane: "x"}, parcel{id: 2, bin: "b"})
		start := time.Now()
		mustClose(t, b)
		equal(t, "took", 0, time.Since(start))
		equal(t, "errors", map[int]error{1: nil, 2: nil}, a.errs)
		_, err := b.Do(t.Context(), parcel{})
		isError(t, err, ferry.ErrClosed)
		isError(t, b.Submit(parcel{}, a.of(9)), ferry.ErrClosed)
		mustClose(t, b)
		equal(t, "never answered", 0, a.times[9])
	})
}

func TestCloseInterruptsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, byFields(small(2))
		c.MaxBatch = 1
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 1, lane: "x"}, parcel{id: 2})
		synctest.Wait()
		submit(t, b, a, parcel{id: 3, lane: "x"}, parcel{id: 4, group: "g"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Close(ctx)
		isError(t, err, ferry.ErrInterrupted)
		isError(t, err, context.DeadlineExceeded)
		equal(t, "answers", 4, len(a.order))
		for _, ran := range []int{1, 2} {
			isError(t, a.errs[ran], ferry.ErrInterrupted)
			isError(t, a.errs[ran], context.Canceled)
		}
		for _, never := range []int{3, 4} {
			isError(t, a.errs[never], ferry.ErrClosed)
		}
		equal(t, "stats", ferry.Stats{}, b.Stats())
		patient := b.Close(t.Context())
		isError(t, patient, ferry.ErrInterrupted) // somebody's inputs were not run, whoever gave them up
	})
}

// stall lets an hour pass between the taking of the first batch and its run.
type stall struct{ sums }

func (s *stall) Add(c ferry.Counter, delta int64) {
	s.sums.Add(c, delta)
	if c == ferry.Running && delta > 0 {
		time.Sleep(time.Hour)
	}
}

func TestABatchTakenBeforeAnInterruptionIsNotRunAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c, m := &pier{}, small(1), &stall{}
		c.Metrics = m
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 1})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		isError(t, b.Close(ctx), ferry.ErrInterrupted)
		isError(t, a.errs[1], ferry.ErrClosed)
		equal(t, "batches", 0, len(p.seen()))
		equal(t, "abandoned", 1, m.of[ferry.Abandoned].Load())
		equal(t, "running", 0, m.of[ferry.Running].Load())
	})
}

func TestNoGoroutineOutlivesClose(t *testing.T) {
	noLeak(t)
	b := mustNew(t, small(16), (&pier{}).run)
	for i := range 100 {
		_, err := b.Do(t.Context(), parcel{id: i})
		noError(t, err)
	}
	seen := alive() != ""
	mustClose(t, b)
	if !seen {
		t.Fatal("the leak check sees no worker")
	}
}

func TestConcurrentClosesAllWaitForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pier{gate: make(chan struct{})}
		b, a := mustNew(t, small(1), p.run), newAnswers()
		submit(t, b, a, parcel{id: 1})
		patient := make(chan error)
		go func() { patient <- b.Close(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		isError(t, b.Close(ctx), ferry.ErrInterrupted)
		noError(t, <-patient)
		isError(t, a.errs[1], ferry.ErrInterrupted)
	})
}
