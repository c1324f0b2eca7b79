package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func anything(*hook.Event) bool { return true }

func TestL05_AWatcherThatReadsNothingHoldsUpNoSettle(t *testing.T) {
	const settles = 2*watchQueue + 1
	h := newHub(1)
	idle, ok := h.watch(anything)
	require.True(t, ok)
	reading, ok := h.watch(anything)
	require.True(t, ok)
	for i := range settles {
		at := hook.Timestamp(i + 2)
		h.settled([]hook.Settlement{{Verdict: hook.Verdict{Kind: hook.Complete}}}, at)
		got := <-reading.queue
		require.Equal(t, hook.EventDelivered, got.event.Kind)
		require.Equal(t, at, got.event.At)
	}
	require.Len(t, idle.queue, watchQueue)
	for range watchQueue {
		<-idle.queue
	}
	_, open := <-idle.queue
	require.False(t, open, "it is cut off where it fell behind")
	require.True(t, idle.fell)
	require.False(t, reading.fell)
	h.unwatch(idle)
	h.close()
	_, open = <-reading.queue
	require.False(t, open)
	require.False(t, reading.fell)
}
