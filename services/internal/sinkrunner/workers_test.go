package sinkrunner

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestWorkersAreKeptForTheNextAttemptsAndNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		release := make(chan struct{})
		w := newWorkers(2, func(*lease, found) {
			running.Add(1)
			<-release
			running.Add(-1)
		})
		for range 3 { // more than are kept run all the same
			for range 5 {
				w.do(nil, found{})
			}
			synctest.Wait()
			require.EqualValues(t, 5, running.Load())
			for range 5 {
				release <- struct{}{}
			}
			synctest.Wait()
			require.Zero(t, running.Load())
			require.Equal(t, 2, w.idle)
		}
		w.close()
	})
}
