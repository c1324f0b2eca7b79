package local

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"ankusa.dev/services/internal/kv"
)

// openLog makes a log, or skips where the kernel has no asynchronous syncs.
func openLog(t *testing.T, fs vfs.FS, name string) *walFile {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	l, ok := f.(*walFile)
	require.True(t, ok)
	a, err := newAIO()
	if err != nil {
		t.Skip("no asynchronous I/O here: ", err)
	}
	require.NoError(t, a.close())
	return l
}

func logs(t *testing.T) vfs.FS {
	fs, free := asyncLogs(vfs.Default)
	t.Cleanup(func() { require.NoError(t, free()) })
	return fs
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

func TestALogIsSyncedAsynchronouslyAndLeavesNothingOpen(t *testing.T) {
	dir := t.TempDir()
	before := descriptors(t)
	fs, free := asyncLogs(vfs.Default)
	for range 3 {
		l := openLog(t, fs, filepath.Join(dir, "000001.log"))
		for range 20 {
			_, err := l.Write([]byte("row"))
			require.NoError(t, err)
			require.NoError(t, l.SyncData())
		}
		require.NotNil(t, l.aio, "one context serves all syncs")
		require.False(t, l.plain)
		require.NoError(t, l.Close())
		require.Equal(t, before+1, descriptors(t), "the next log uses it again")
	}
	require.NoError(t, free())
	require.Equal(t, before, descriptors(t))
	text, err := os.ReadFile(filepath.Join(dir, "000001.log"))
	require.NoError(t, err)
	require.Len(t, text, 60)
}

func TestALogThatIsReusedIsSyncedAsynchronously(t *testing.T) {
	dir := t.TempDir()
	fs := logs(t)
	require.NoError(t, openLog(t, fs, filepath.Join(dir, "000001.log")).Close())
	f, err := fs.ReuseForWrite(
		filepath.Join(dir, "000001.log"), filepath.Join(dir, "000002.log"), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	l, ok := f.(*walFile)
	require.True(t, ok)
	require.NoError(t, l.SyncData())
	require.NotNil(t, l.aio)
	require.NoError(t, l.Close())
}

func TestOtherFilesAreSyncedAsEver(t *testing.T) {
	f, err := logs(t).Create(filepath.Join(t.TempDir(), "000001.sst"), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, log := f.(*walFile)
	require.False(t, log)
	require.NoError(t, f.Close())
}

// A kernel that does not take the request has not synced anything: the file's own way must.
func TestASyncThatIsNotTakenIsMadeInTheOtherWay(t *testing.T) {
	plain := &countingFile{}
	l := openLog(t, logs(t), filepath.Join(t.TempDir(), "000001.log"))
	plain.File = l.File
	l.File = plain
	require.NoError(t, l.SyncData())
	require.Zero(t, plain.synced)
	l.aio.request.opcode = 255 // there is none
	require.NoError(t, l.SyncData())
	require.NoError(t, l.SyncData())
	require.Equal(t, 2, plain.synced, "nor is it tried again")
	require.Nil(t, l.aio)
	require.NoError(t, l.Close())
}

// countingFile counts the syncs that wait in a system call.
type countingFile struct {
	vfs.File
	synced int
}

func (c *countingFile) SyncData() error {
	c.synced++
	return c.File.SyncData()
}

func TestASyncThatFailsSaysSo(t *testing.T) {
	l := openLog(t, logs(t), filepath.Join(t.TempDir(), "000001.log"))
	require.NoError(t, l.SyncData())
	require.NoError(t, l.File.Close())
	require.Error(t, l.SyncData(), "the file is closed")

	require.NoError(t, (&ioEvent{}).fault())
	require.ErrorIs(t, (&ioEvent{result: -int64(unix.EIO)}).fault(), unix.EIO)
}

func TestLogsAreSyncedSideBySide(t *testing.T) {
	dir, fs := t.TempDir(), logs(t)
	var all sync.WaitGroup
	for _, name := range []string{"000001.log", "000002.log", "000003.log"} {
		l := openLog(t, fs, filepath.Join(dir, name))
		for range 2 { // of one log, one after the other
			all.Go(func() {
				for range 50 {
					if err := l.SyncData(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		t.Cleanup(func() { require.NoError(t, l.Close()) })
	}
	all.Wait()
}

// The store's own log is synced that way.
func TestTheStoreSyncsItsLogAsynchronously(t *testing.T) {
	o := Default()
	o.Dir = t.TempDir()
	before := descriptors(t)
	s, err := Open(o, zap.NewNop())
	require.NoError(t, err)
	fs, free := engineFS(nil)
	require.IsType(t, &walFS{}, fs)
	require.NoError(t, free())
	_, err = s.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error { return tx.Put([]byte("k"), []byte("v")) })
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.LessOrEqual(t, descriptors(t), before, "nothing is left open")

	mem := vfs.NewMem()
	fs, _ = engineFS(mem)
	require.Equal(t, mem, fs, "a test's file system is left as it is")
}
