package local

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// crashed returns the file system of a new store that has crashed with acknowledged writes in its first log.
func crashed(t *testing.T) vfs.FS {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s, err := Open(memOptions(mem), zap.NewNop())
	require.NoError(t, err)
	for i := range 400 {
		require.NoError(t, putKey(t, s, fmt.Sprintf("%04d%s", i, strings.Repeat("k", 400))))
	}
	clone := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())
	return clone
}

// damage rewrites the newest log.
func damage(t *testing.T, fs vfs.FS, dir string, change func(log []byte) []byte) {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			newest = max(newest, name)
		}
	}
	path := fs.PathJoin(dir, newest)
	f, err := fs.Open(path)
	require.NoError(t, err)
	log, err := io.ReadAll(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = w.Write(change(log))
	require.NoError(t, err)
	require.NoError(t, w.Sync())
	require.NoError(t, w.Close())
}

func TestI2_ADamagedLogIsNotTakenForATornOne(t *testing.T) {
	fs := crashed(t)
	damage(t, fs, memOptions(fs).Dir, func(log []byte) []byte {
		require.Greater(t, len(log), 128<<10)
		copy(log[40<<10:], make([]byte, 100))
		return log
	})
	_, err := Open(memOptions(fs), zap.NewNop())
	require.ErrorContains(t, err, "open store in", "what was acknowledged behind the damage would be lost")
}

func TestATornLogIsReadUpToItsEnd(t *testing.T) {
	fs := crashed(t)
	damage(t, fs, memOptions(fs).Dir, func(log []byte) []byte { return log[:len(log)-7] })
	s, err := Open(memOptions(fs), zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, getKey(t, s, "0000"+strings.Repeat("k", 400)))
	require.NoError(t, s.Close())
}

// Where nothing behind it proves that it had been synced, damage cannot be told from the end that a crash leaves: that is
// so within the log's last block. What stands before it is kept, and nothing behind it, so that no transaction is read
// in part or changed.
func TestDamageInTheLastBlockEndsTheLogThere(t *testing.T) {
	fs := crashed(t)
	damage(t, fs, memOptions(fs).Dir, func(log []byte) []byte {
		last := len(log) / (32 << 10) * (32 << 10)
		copy(log[(last+len(log))/2:], make([]byte, 100))
		return log
	})
	s, err := Open(memOptions(fs), zap.NewNop())
	require.NoError(t, err)
	kept := 0
	for i := range 400 {
		err := getKey(t, s, fmt.Sprintf("%04d%s", i, strings.Repeat("k", 400)))
		if err == nil {
			require.Equal(t, kept, i, "there is no hole")
			kept++
			continue
		}
		require.ErrorIs(t, err, kv.ErrNotFound)
	}
	require.Greater(t, kept, 300)
	require.Less(t, kept, 400)
	require.NoError(t, s.Close())
}
