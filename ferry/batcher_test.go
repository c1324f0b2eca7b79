package ferry_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"ankusa.dev/ferry"
)

func TestEveryCallerGetsTheAnswerToItsInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pier{}
		b := mustNew(t, small(3), p.run)
		for i := range 1000 {
			go func() {
				out, err := b.Do(t.Context(), parcel{id: i})
				if err != nil || out != i {
					t.Errorf("input %d: got %d, %v", i, out, err)
				}
			}()
		}
		synctest.Wait()
		mustClose(t, b)
	})
}

func TestAnAnswerIsPerInputOrForTheWholeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		odd, whole := errors.New("odd"), errors.New("whole")
		b := mustNew(t, small(1), func(_ context.Context, batch []parcel) ([]ferry.Result[int], error) {
			results := ids(batch)
			for i, in := range batch {
				if in.id == 99 {
					return results, whole
				}
				if in.id%2 == 1 {
					results[i].Err = odd
				}
			}
			return results, nil
		})
		_, err := b.Do(t.Context(), parcel{id: 2})
		noError(t, err)
		_, err = b.Do(t.Context(), parcel{id: 3})
		isError(t, err, odd)
		_, err = b.Do(t.Context(), parcel{id: 99})
		isError(t, err, whole)
		mustClose(t, b)
	})
}

func TestAFreeSlotTakesWhateverIsQueuedWithoutAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pier{gate: make(chan struct{})}
		b, a := mustNew(t, small(1), p.run), newAnswers()
		submit(t, b, a, parcel{id: 0})
		synctest.Wait()
		submit(t, b, a, parcel{id: 1}, parcel{id: 2}, parcel{id: 3})
		p.gate <- struct{}{}
		synctest.Wait()
		equal(t, "batches", [][]int{{0}, {1, 2, 3}}, p.seen())
		close(p.gate)
		mustClose(t, b)
	})
}

func TestABatchLeavesWhenItsOldestInputHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{}, small(1)
		c.MaxWait = 10 * time.Millisecond
		b, a := mustNew(t, c, p.run), newAnswers()
		start := time.Now()
		for i := range 4 { // at 0, 4, 8, 12 ms
			submit(t, b, a, parcel{id: i})
			pause(4 * time.Millisecond)
		}
		pause(time.Second)
		equal(t, "batches", [][]int{{0, 1, 2}, {3}}, p.seen())
		equal(t, "first", 10*time.Millisecond, p.started[0].Sub(start))
		equal(t, "second", 22*time.Millisecond, p.started[1].Sub(start))
		mustClose(t, b)
	})
}

func TestAWaitForASlotCountsAndIsNotRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, small(1)
		c.MaxWait = 10 * time.Millisecond
		b, a := mustNew(t, c, p.run), newAnswers()
		start := time.Now()
		submit(t, b, a, parcel{id: 0})
		pause(15 * time.Millisecond) // 0 runs since 10 ms
		submit(t, b, a, parcel{id: 1})
		pause(15 * time.Millisecond)
		p.gate <- struct{}{} // 1 is overdue
		synctest.Wait()
		equal(t, "second", 30*time.Millisecond, p.started[1].Sub(start))
		submit(t, b, a, parcel{id: 2})
		pause(4 * time.Millisecond)
		p.gate <- struct{}{} // 2 has 6 ms left
		pause(time.Second)
		equal(t, "third", 40*time.Millisecond, p.started[2].Sub(start))
		close(p.gate)
		mustClose(t, b)
	})
}

func TestABatchIsNotSplitBetweenIdleSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{}, small(8)
		c.MaxWait, c.MaxBatch = time.Second, 500
		b, a := mustNew(t, c, p.run), newAnswers()
		for i := range 499 {
			submit(t, b, a, parcel{id: i})
		}
		pause(time.Minute)
		equal(t, "batches", 1, len(p.seen()))
		for i := range 500 {
			submit(t, b, a, parcel{id: i})
		}
		synctest.Wait() // full: no wait
		equal(t, "batches", 2, len(p.seen()))
		mustClose(t, b)
	})
}

func TestABatchIsLimitedByWeightAndAHeavyInputRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, byFields(small(1))
		c.MaxBatchWeight = 100
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 0})
		synctest.Wait()
		submit(t, b, a,
			parcel{id: 1, weight: 60}, parcel{id: 2, weight: 40}, parcel{id: 3, weight: 1},
			parcel{id: 4, weight: 101}, parcel{id: 5, weight: 50}, parcel{id: 6, weight: 60})
		close(p.gate)
		mustClose(t, b)
		equal(t, "batches", [][]int{{0}, {1, 2}, {3}, {4}, {5}, {6}}, p.seen())
	})
}

func TestAdmissionRejectsAtOnceAndNamesTheBound(t *testing.T) {
	heavy := func(c *ferry.Config[parcel]) { c.MaxQueueWeight = 10 }
	for name, tc := range map[string]struct {
		set    func(*ferry.Config[parcel])
		held   []parcel
		out    parcel
		bound  ferry.Bound
		passes parcel
	}{
		"count":        {func(c *ferry.Config[parcel]) { c.MaxBatch, c.MaxQueue = 2, 2 }, []parcel{{}, {}}, parcel{}, ferry.MaxQueue, parcel{}},
		"weight":       {heavy, []parcel{{weight: 6}}, parcel{weight: 5}, ferry.MaxQueueWeight, parcel{weight: 4}},
		"heavy":        {heavy, []parcel{{weight: 1}}, parcel{weight: 11}, ferry.MaxQueueWeight, parcel{}},
		"beside heavy": {heavy, []parcel{{weight: 11}}, parcel{}, ferry.MaxQueueWeight, parcel{}},
		"group count": {func(c *ferry.Config[parcel]) { c.MaxQueuePerGroup = 1 }, []parcel{{group: "a"}}, parcel{group: "a"},
			ferry.MaxQueuePerGroup, parcel{group: "b"}},
		"group weight": {func(c *ferry.Config[parcel]) { c.MaxQueueWeightPerGroup = 10 }, []parcel{{group: "a", weight: 9}},
			parcel{group: "a", weight: 2}, ferry.MaxQueueWeightPerGroup, parcel{group: "b", weight: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, c := &pier{gate: make(chan struct{})}, byFields(small(1))
				tc.set(&c)
				b, a := mustNew(t, c, p.run), newAnswers()
				submit(t, b, a, tc.held...)
				synctest.Wait() // in flight counts too
				_, err := b.Do(t.Context(), tc.out)
				var rejected *ferry.RejectedError
				if !errors.As(err, &rejected) || rejected.Bound != tc.bound {
					t.Fatalf("want a rejection by %s, got %v", tc.bound, err)
				}
				isError(t, err, ferry.ErrRejected)
				if tc.passes != (parcel{}) {
					submit(t, b, a, tc.passes)
				}
				close(p.gate)
				synctest.Wait()
				_, err = b.Do(t.Context(), tc.out)
				noError(t, err)
				mustClose(t, b)
				equal(t, "stats", ferry.Stats{}, b.Stats())
			})
		})
	}
}

func TestACallerWhoLeavesIsLeftOutAndFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, small(1)
		c.MaxBatch, c.MaxQueue = 2, 2
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 0})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { _, err := b.Do(ctx, parcel{id: 1}); left <- err }()
		synctest.Wait()
		isError(t, b.Submit(parcel{id: 2}, a.of(2)), ferry.ErrRejected)
		cancel()
		isError(t, <-left, context.Canceled)
		submit(t, b, a, parcel{id: 3})
		close(p.gate)
		mustClose(t, b)
		equal(t, "batches", [][]int{{0}, {3}}, p.seen())
	})
}

func TestACallerWhoLeavesARunningBatchDoesNotHoldItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pier{gate: make(chan struct{})}
		b := mustNew(t, small(1), p.run)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Do(ctx, parcel{id: 1})
		isError(t, err, context.DeadlineExceeded)
		equal(t, "stats", ferry.Stats{InFlight: 1}, b.Stats())
		close(p.gate)
		mustClose(t, b)
	})
}

func TestAnEndedContextAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pier{}
		b := mustNew(t, small(1), p.run)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.Do(ctx, parcel{})
		isError(t, err, context.Canceled)
		mustClose(t, b)
		equal(t, "batches", 0, len(p.seen()))
	})
}

func TestADefectReachesEveryCallerOfItsBatchAndNothingElse(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		run   func([]parcel) []ferry.Result[int]
		check func(*testing.T, error)
	}{
		"panic": {func([]parcel) []ferry.Result[int] { panic(boom) }, func(t *testing.T, err error) {
			var p *ferry.PanicError
			if !errors.As(err, &p) || p.Value != any(boom) || len(p.Stack) == 0 {
				t.Fatalf("want the panic, got %#v", err)
			}
			isError(t, err, boom)
		}},
		"goexit": {func([]parcel) []ferry.Result[int] { runtime.Goexit(); return nil }, func(t *testing.T, err error) {
			isError(t, err, ferry.ErrGoexit)
		}},
		"too few": {func([]parcel) []ferry.Result[int] { return nil }, func(t *testing.T, err error) {
			var c *ferry.ResultCountError
			if !errors.As(err, &c) || *c != (ferry.ResultCountError{Got: 0, Want: 3}) {
				t.Fatalf("want the count, got %#v", err)
			}
		}},
		"too many": {func([]parcel) []ferry.Result[int] { return make([]ferry.Result[int], 4) }, func(t *testing.T, err error) {
			isError(t, err, ferry.ErrDefect)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := small(2)
				c.MaxBatch, c.MaxWait = 3, time.Second
				b := mustNew(t, c, func(_ context.Context, batch []parcel) ([]ferry.Result[int], error) {
					if batch[0].id < 0 {
						return tc.run(batch), nil
					}
					time.Sleep(time.Second)
					return ids(batch), nil
				})
				a := newAnswers()
				submit(t, b, a, parcel{id: 1}, parcel{id: 2}, parcel{id: 3}, parcel{id: -1}, parcel{id: -2}, parcel{id: -3})
				pause(10 * time.Second)
				for id := 1; id <= 3; id++ {
					equal(t, "good", error(nil), a.errs[id])
					isError(t, a.errs[-id], ferry.ErrDefect)
					tc.check(t, a.errs[-id])
				}
				submit(t, b, a, parcel{id: 4}, parcel{id: 5}) // both slots live
				mustClose(t, b)
				equal(t, "after", 8, len(a.order))
			})
		})
	}
}

func TestALaneKeepsItsOrderAndIsNeverInTwoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, byFields(small(3))
		c.MaxBatch = 2
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 1, lane: "x"})
		synctest.Wait()
		submit(t, b, a, parcel{id: 2, lane: "x"}, parcel{id: 3, lane: "x"}, parcel{id: 4, lane: "x"})
		synctest.Wait()
		equal(t, "while 1 runs", [][]int{{1}}, p.seen())
		submit(t, b, a, parcel{id: 5, lane: "y"})
		synctest.Wait()
		equal(t, "another lane", [][]int{{1}, {5}}, p.seen())
		p.gate <- struct{}{}
		p.gate <- struct{}{}
		synctest.Wait()
		equal(t, "then", [][]int{{1}, {5}, {2, 3}}, p.seen())
		close(p.gate)
		mustClose(t, b)
		equal(t, "all", [][]int{{1}, {5}, {2, 3}, {4}}, p.seen())
	})
}

func TestGroupsAreTakenByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, byFields(small(1))
		c.MaxBatch = 3
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 0})
		synctest.Wait()
		for i := 1; i <= 5; i++ {
			submit(t, b, a, parcel{id: i, group: "heavy"})
		}
		submit(t, b, a, parcel{id: 11, group: "light"}, parcel{id: 12, group: "light"}, parcel{id: 21, group: "other"})
		close(p.gate)
		mustClose(t, b)
		equal(t, "batches", [][]int{{0}, {1, 11, 21}, {2, 12, 3}, {4, 5}}, p.seen())
	})
}

func TestBinsShareNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{gate: make(chan struct{})}, byFields(small(1))
		c.MaxWait = 10 * time.Millisecond
		c.MaxBatch = 2
		b, a := mustNew(t, c, p.run), newAnswers()
		submit(t, b, a, parcel{id: 1, bin: "x"})
		pause(time.Millisecond)
		submit(t, b, a, parcel{id: 2, bin: "y"}, parcel{id: 3, bin: "y"}, parcel{id: 4, bin: "y"})
		synctest.Wait()
		equal(t, "full first", [][]int{{2, 3}}, p.seen())
		close(p.gate)
		pause(time.Second)
		equal(t, "then by age", [][]int{{2, 3}, {1}, {4}}, p.seen())
		mustClose(t, b)
	})
}

func TestAnAnswerMaySubmitIntoThePlaceThatItsInputHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := small(1)
		c.MaxBatch, c.MaxQueue = 1, 1
		b := mustNew(t, c, (&pier{}).run)
		var count int
		var again func(int, error)
		again = func(int, error) {
			if count++; count < 10 {
				if err := b.Submit(parcel{id: count}, again); err != nil {
					t.Errorf("answer %d: %v", count, err)
				}
			}
		}
		noError(t, b.Submit(parcel{}, again))
		synctest.Wait()
		equal(t, "answers", 10, count)
		mustClose(t, b)
	})
}

func TestAnAnswerThatEndsItsGoroutineLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := small(1)
		c.MaxWait = time.Second
		b, a := mustNew(t, c, (&pier{}).run), newAnswers()
		submit(t, b, a, parcel{id: 1})
		noError(t, b.Submit(parcel{id: 2}, func(int, error) { runtime.Goexit() }))
		submit(t, b, a, parcel{id: 3})
		pause(2 * time.Second)
		equal(t, "answers", map[int]error{1: nil, 3: nil}, a.errs)
		mustClose(t, b)
	})
}

func TestALanesAnswersAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := byFields(small(3))
		c.MaxBatch = 2
		b := mustNew(t, c, (&pier{}).run)
		var told []int
		for i := range 50 {
			noError(t, b.Submit(parcel{id: i, lane: "x"}, func(id int, _ error) {
				time.Sleep(time.Duration(50-i) * time.Millisecond) // a slow answer holds its lane
				told = append(told, id)                            // and needs no lock
			}))
		}
		mustClose(t, b)
		for i, id := range told {
			equal(t, "answer", i, id)
		}
		equal(t, "answers", 50, len(told))
	})
}

func TestTheBatchAndTheResultsMayBeReused(t *testing.T) {
	results := make([]ferry.Result[int], 256)
	var kept []parcel
	b := mustNew(t, small(1), func(_ context.Context, batch []parcel) ([]ferry.Result[int], error) {
		kept = batch
		for i, in := range batch {
			results[i].Value = in.id
		}
		return results[:len(batch)], nil
	})
	for i := range 100 {
		out, err := b.Do(t.Context(), parcel{id: i})
		noError(t, err)
		equal(t, "answer", i, out)
	}
	mustClose(t, b)
	equal(t, "what is kept is cleared", parcel{}, kept[0])
}

func TestALongestWaitDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := &pier{}, small(1)
		c.MaxWait = math.MaxInt64
		b := mustNew(t, c, p.run)
		noError(t, b.Submit(parcel{id: 1}, nil))
		pause(24 * time.Hour)
		equal(t, "batches", 0, len(p.seen()))
		mustClose(t, b)
		equal(t, "batches", 1, len(p.seen()))
	})
}
