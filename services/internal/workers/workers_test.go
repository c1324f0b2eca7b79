package workers

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkersAreKeptForTheNextJobsAndNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		release := make(chan struct{})
		w := New(2, func(int) {
			running.Add(1)
			<-release
			running.Add(-1)
		})
		for range 3 { // more than are kept run all the same
			for i := range 5 {
				w.Do(i)
			}
			synctest.Wait()
			require.EqualValues(t, 5, running.Load())
			for range 5 {
				release <- struct{}{}
			}
			synctest.Wait()
			require.Zero(t, running.Load())
			require.Equal(t, 2, w.Idle())
		}
		w.Close()
	})
}

func TestAWorkerThatHasNothingToDoForLongEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(2, func(int) {})
		require.True(t, w.Do(1))
		synctest.Wait()
		time.Sleep(IdleTime - time.Second)
		require.True(t, w.Do(2))
		time.Sleep(IdleTime - time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.Idle(), "its time begins anew with each job")
		time.Sleep(time.Second)
		w.all.Wait() // nobody has closed them
		require.Zero(t, w.Idle())
		require.True(t, w.Do(3), "others come after it")
		synctest.Wait()
		require.Equal(t, 1, w.Idle())
		w.Close()
	})
}

// Where one is enough, the others grow old.
func TestTheOneThatBecameIdleLastIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(4, func(time.Duration) { time.Sleep(time.Millisecond) })
		for range 4 {
			require.True(t, w.Do(0))
		}
		for range int(IdleTime/time.Second) + 1 {
			time.Sleep(time.Second)
			require.True(t, w.Do(0))
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, w.Idle())
		w.Close()
	})
}

func TestWorkersThatAreClosedTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		w := New(2, func(int) { ran++ })
		require.True(t, w.Do(1))
		w.Close()
		require.True(t, w.Closed())
		require.False(t, w.Do(2))
		require.Equal(t, 1, ran)
		time.Sleep(2 * IdleTime)
	})
}

// Every job that is taken runs once, whatever else happens, and Close waits for it.
func TestEveryJobThatIsTakenRunsOnce(t *testing.T) {
	var ran, taken atomic.Int64
	w := New(3, func(int) { ran.Add(1) })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				if !w.Do(i) {
					return
				}
				taken.Add(1)
			}
		})
	}
	for taken.Load() < 1000 {
		time.Sleep(time.Millisecond)
	}
	w.Close()
	require.Zero(t, w.Idle())
	all.Wait()
	require.Equal(t, taken.Load(), ran.Load())
}
