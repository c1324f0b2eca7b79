package workers

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func (w *Workers[Job]) resting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.idle)
}

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
			require.Equal(t, 2, w.resting())
		}
		w.Close()
	})
}

func TestAWorkerThatHasNothingToDoForLongEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(2, func(int) {})
		require.True(t, w.Do(1))
		synctest.Wait()
		time.Sleep(idleTime - time.Second)
		require.True(t, w.Do(2))
		time.Sleep(idleTime - time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.resting(), "its time begins anew with each job")
		time.Sleep(time.Second)
		w.all.Wait() // nobody has closed them
		require.Zero(t, w.resting())
		require.True(t, w.Do(3), "others come after it")
		synctest.Wait()
		require.Equal(t, 1, w.resting())
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
		for range int(idleTime/time.Second) + 1 {
			time.Sleep(time.Second)
			require.True(t, w.Do(0))
		}
		time.Sleep(time.Second)
		require.Equal(t, 1, w.resting())
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
		time.Sleep(2 * idleTime)
	})
}

// Every job that is taken runs once, whatever else happens, and Close waits for it.
func TestEveryJobThatIsTakenRunsOnce(t *testing.T) {
	var ran, taken atomic.Int64
	many := make(chan struct{})
	w := New(3, func(int) { ran.Add(1) })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				if !w.Do(i) {
					return
				}
				if taken.Add(1) == 1000 {
					close(many)
				}
			}
		})
	}
	<-many
	w.Close()
	require.Zero(t, w.resting())
	all.Wait()
	require.Equal(t, taken.Load(), ran.Load())
}
