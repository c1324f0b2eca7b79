package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func putKey(t testing.TB, s kv.Store, key string) error {
	_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error {
		return tx.Put([]byte(key), []byte("x"))
	})
	return err
}

func getKey(t testing.TB, s kv.Store, key string) error {
	return s.View(t.Context(), func(r kv.Reader) error {
		_, err := r.Get(t.Context(), []byte(key))
		return err
	})
}

func TestOptionsReportEveryFault(t *testing.T) {
	o := Default()
	require.ErrorContains(t, o.Validate(), "store.local.dir")
	o.Dir = "x"
	require.NoError(t, o.Validate())
	err := Options{MinFreeBytes: -1, MaxTransactionBytes: -1}.Validate()
	for _, key := range []string{"dir", "cache_bytes", "mem_table_bytes", "min_free_bytes", "max_entry_bytes", "max_transaction_bytes"} {
		require.ErrorContains(t, err, "store.local."+key)
	}
	_, err = Open(Options{}, zaptest.NewLogger(t))
	require.ErrorContains(t, err, "store.local.dir")
}

func TestDirectoryIsHeldExclusively(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := openDir(t, dir)
	_, err := Open(Options{Dir: dir, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, MaxEntryBytes: 1 << 10, MaxTransactionBytes: 1 << 10}, zaptest.NewLogger(t))
	require.ErrorContains(t, err, dir+" is in use")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestOpenedByAnotherProcess$", "-test.v")
	cmd.Env = append(os.Environ(), otherDir+"="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "is in use")
	require.NoError(t, putKey(t, s, "a"), "the first is not disturbed")
	require.NoError(t, s.Close())
	require.NoError(t, openDir(t, dir).Close(), "closing gives it back")
}

const otherDir = "LOCAL_TEST_OTHER_DIR"

// TestOpenedByAnotherProcess is the other process of TestDirectoryIsHeldExclusively.
func TestOpenedByAnotherProcess(t *testing.T) {
	dir := os.Getenv(otherDir)
	if dir == "" {
		t.Skip("has work only as a child process")
	}
	o := Default()
	o.Dir = dir
	_, err := Open(o, zap.NewNop())
	require.Error(t, err)
	t.Log(err)
}

func TestLowSpaceRefusesWritesAlone(t *testing.T) {
	mem := vfs.NewMem()
	plenty := vfs.DiskUsage{AvailBytes: 100 << 30}
	mem.TestingSetDiskUsage(plenty)
	s := openMem(t, mem)
	defer func() { require.NoError(t, s.Close()) }()
	now := time.Now()
	s.guard.now = func() time.Time { return now }
	require.NoError(t, putKey(t, s, "a"))

	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1<<30 - 1})
	require.NoError(t, putKey(t, s, "b"), "within a second, with plenty of space at the last look")
	now = now.Add(lookEvery + 1)
	require.ErrorIs(t, putKey(t, s, "c"), kv.ErrUnavailable)
	require.NoError(t, getKey(t, s, "a"))
	require.ErrorIs(t, getKey(t, s, "c"), kv.ErrNotFound)
	_, err := s.Now(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.DropRange(t.Context(), kv.Range{From: []byte("b")}), "this makes space")

	mem.TestingSetDiskUsage(plenty)
	require.NoError(t, putKey(t, s, "c"), "it comes back by itself, at once")
}

func TestLowSpaceLooksMoreOftenTheLessThereIs(t *testing.T) {
	mem := vfs.NewMem()
	now := time.Now()
	g := guard{fs: mem, min: 1000, now: func() time.Time { return now }}
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1400})
	require.NoError(t, g.admit(10))
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 500})
	require.NoError(t, g.admit(50), "a quarter of the rest is free to write")
	require.ErrorIs(t, g.admit(60), kv.ErrUnavailable, "then it looks")
	require.NoError(t, (&guard{fs: mem, now: time.Now}).admit(1), "zero switches it off")
}

// A log that cannot be synced leaves commits undetermined and the store useless; a fatal entry ends the process.
func TestFailedLogIsFatal(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	core, entries := observer.New(zapcore.ErrorLevel)
	fatal := make(chan struct{})
	log := zap.New(core, zap.WithFatalHook(fatalHook{fatal}))
	d := &disk{FS: vfs.NewMem()}
	s, err := Open(memOptions(d), log)
	require.NoError(t, err)
	require.NoError(t, putKey(t, s, "a"))
	broken := errors.New("input/output error")
	d.broken.Store(&broken)
	err = putKey(t, s, "b")
	require.ErrorIs(t, err, kv.ErrUndetermined)
	<-fatal
	require.Equal(t, 1, entries.FilterMessage("write-ahead log failed").FilterLevelExact(zapcore.FatalLevel).Len())
	require.ErrorIs(t, putKey(t, s, "c"), kv.ErrUnavailable)
	require.ErrorIs(t, getKey(t, s, "a"), kv.ErrUnavailable)
	_, err = s.Now(t.Context())
	require.ErrorIs(t, err, kv.ErrUnavailable)
	require.ErrorIs(t, s.DropRange(t.Context(), kv.Range{}), kv.ErrUnavailable)
	require.ErrorIs(t, s.Close(), broken)
}

// fatalHook stands for the end of the process.
type fatalHook struct{ called chan struct{} }

func (h fatalHook) OnWrite(*zapcore.CheckedEntry, []zapcore.Field) { close(h.called) }

func TestConflictTableIsBoundedByTheOldestTransaction(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer func() { require.NoError(t, s.Close()) }()
	for i := range 100 {
		require.NoError(t, putKey(t, s, string(rune('a'+i))))
	}
	require.Empty(t, s.recent.last, "nobody is open")
	_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(older kv.Txn) error {
		for range 10 {
			require.NoError(t, putKey(t, s, "k"))
		}
		require.Len(t, s.recent.last, 1)
		_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(younger kv.Txn) error {
			return younger.Put([]byte("l"), []byte("x"))
		})
		return err
	})
	require.NoError(t, err)
	require.Empty(t, s.recent.last)
	require.NoError(t, s.View(t.Context(), func(kv.Reader) error {
		require.NoError(t, putKey(t, s, "k"))
		require.Empty(t, s.recent.last, "a reader conflicts with nobody")
		return nil
	}))
}

func TestConflictTableForgetsInFavourOfConflicts(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer func() { require.NoError(t, s.Close()) }()
	s.recent = newConflicts(4)
	_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			require.NoError(t, putKey(t, s, key))
		}
		require.Len(t, s.recent.last, 4)
		return tx.Put([]byte("a"), []byte("lost update"))
	})
	require.ErrorIs(t, err, kv.ErrConflict)
	require.NoError(t, putKey(t, s, "a"), "who began later is not touched")
}

// A closure that panics leaves neither a snapshot nor a place among the open transactions behind.
func TestPanicInClosureFreesTheTransaction(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	require.Panics(t, func() {
		_, _ = s.Update(t.Context(), kv.UpdateOptions{}, func(kv.Txn) error { panic("closure") })
	})
	require.Panics(t, func() { _ = s.View(t.Context(), func(kv.Reader) error { panic("closure") }) })
	require.Nil(t, s.updates.oldest())
	require.Len(t, s.states, 1)
	require.Equal(t, 1, s.durable.users, "none but the store's own")
	require.NoError(t, s.Close())
}

// A view neither waits for a commit on its way to the disk nor sees it; one that begins after its answer sees it.
func TestAViewWaitsForNoCommit(t *testing.T) {
	d := &disk{FS: vfs.NewMem()}
	s, err := Open(memOptions(d), zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, putKey(t, s, "a"))
	waiting, release := d.hold()
	committed := make(chan error, 1)
	go func() { committed <- putKey(t, s, "b") }()
	<-waiting
	require.NoError(t, getKey(t, s, "a"))
	require.ErrorIs(t, getKey(t, s, "b"), kv.ErrNotFound)
	require.Empty(t, committed)
	release()
	require.NoError(t, <-committed)
	require.NoError(t, getKey(t, s, "b"))
	require.NoError(t, s.Close())
}

// Views that stay open keep their states, and none is left behind when they end, whatever was committed meanwhile.
func TestAStateGoesWithItsLastView(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	require.NoError(t, s.View(t.Context(), func(outer kv.Reader) error {
		require.NoError(t, putKey(t, s, "a"))
		return s.View(t.Context(), func(inner kv.Reader) error {
			require.Greater(t, inner.Timestamp(), outer.Timestamp())
			require.NoError(t, putKey(t, s, "b"))
			_, err := outer.Get(t.Context(), []byte("a"))
			require.ErrorIs(t, err, kv.ErrNotFound)
			_, err = inner.Get(t.Context(), []byte("b"))
			require.ErrorIs(t, err, kv.ErrNotFound)
			require.Len(t, s.states, 3)
			return nil
		})
	}))
	require.Len(t, s.states, 1)
	require.NoError(t, s.Close())
	require.Empty(t, s.states)
}

// The store in memory lives in a bubble: its timestamps follow the bubble's clock, and its goroutines neither hold
// time up nor outlive Close.
func TestMemoryStoreWorksInABubble(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			s, err := OpenMem(zaptest.NewLogger(t))
			require.NoError(t, err)
			before, err := s.Now(t.Context())
			require.NoError(t, err)
			require.Equal(t, time.Now().UnixMilli(), before.Millis())
			done := make(chan error, 8)
			for range cap(done) {
				go func() {
					time.Sleep(time.Hour)
					_, err := kv.Retry(t.Context(), s, kv.UpdateOptions{Bound: time.Second}, 100, func(tx kv.Txn) error {
						return tx.Put([]byte("a"), make([]byte, 1<<20))
					})
					done <- err
				}()
			}
			for range cap(done) {
				require.NoError(t, <-done)
			}
			synctest.Wait()
			after, err := s.Now(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, after.Sub(before), time.Hour)
			require.Less(t, after.Sub(before), time.Hour+10*time.Second)
			require.NoError(t, s.Close())
		})
	}
}
