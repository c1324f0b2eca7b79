package local

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// engine is the side of the scheduler that has compactions to run.
type engine struct {
	waiting int
	handles []pebble.CompactionGrantHandle // of those that run
	// quick has what is granted end at once, before the scheduler has heard that it was accepted.
	quick bool
	calls int
}

func (e *engine) GetAllowedWithoutPermission() int { return 1 }

func (e *engine) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	e.calls++
	return e.waiting > 0, pebble.WaitingCompaction{}
}

func (e *engine) Schedule(h pebble.CompactionGrantHandle) bool {
	if e.waiting == 0 {
		return false
	}
	e.waiting--
	if e.quick {
		h.Done()
		return true
	}
	e.handles = append(e.handles, h)
	return true
}

// want is a compaction that comes up now.
func (e *engine) want(s pebble.CompactionScheduler) {
	if ok, h := s.TrySchedule(); ok {
		e.handles = append(e.handles, h)
		return
	}
	e.waiting++
}

func (e *engine) end() {
	h := e.handles[0]
	e.handles = e.handles[1:]
	h.Done()
}

func TestCompactionsRunOneAfterTheOther(t *testing.T) {
	e, s := &engine{}, &compactions{}
	s.Register(2, e)
	for range 3 {
		e.want(s)
	}
	for left := 2; left >= 0; left-- {
		require.Len(t, e.handles, 1)
		require.Equal(t, left, e.waiting)
		e.end()
	}
	require.Empty(t, e.handles)
	e.want(s)
	require.Len(t, e.handles, 1, "one that comes later begins at once")
}

func TestACompactionThatEndsBeforeItsGrantIsCountedHoldsNothingUp(t *testing.T) {
	e, s := &engine{quick: true}, &compactions{}
	s.Register(2, e)
	for range 4 {
		e.want(s)
	}
	e.end()
	require.Zero(t, e.waiting)
	e.want(s)
	require.Len(t, e.handles, 1)
}

func TestAnEngineThatHasLeftIsNotAskedAgain(t *testing.T) {
	e, s := &engine{}, &compactions{}
	s.Register(2, e)
	e.want(s)
	e.want(s)
	s.Unregister()
	e.end()
	require.Zero(t, e.calls)
	ok, _ := s.TrySchedule()
	require.False(t, ok)
}

// A backlog of compactions is worked off without anybody looking for it.
func TestFlushesAreCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Default()
		o.Dir, o.FS, o.CacheBytes, o.MemTableBytes = "mem", vfs.NewMem(), 1<<20, 1<<20
		s, err := Open(o, zap.NewNop())
		require.NoError(t, err)
		value := make([]byte, 64<<10)
		for i := range 400 {
			_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error {
				return tx.Put(fmt.Appendf(nil, "%03d", i%100), value)
			})
			require.NoError(t, err)
		}
		synctest.Wait()
		m := s.db.Metrics()
		require.Positive(t, m.Compact.Count)
		require.Zero(t, m.Compact.NumInProgress)
		require.Less(t, m.Levels[0].Sublevels, int32(4))
		require.NoError(t, s.Close())
	})
}
