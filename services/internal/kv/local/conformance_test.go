package local

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/kvtest"
)

func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Factory{
		Open:     func(t testing.TB) kv.Store { return openMem(t, vfs.NewMem()) },
		MaxEntry: 6 << 20,
		Doubts: map[string]kvtest.Doubt{
			"the caller leaves during the sync": {Landed: true, Open: openDoubt},
		},
		Stalls: map[string]func(testing.TB) kvtest.Stall{"before the lock": openStall},
		OpenAt: func(t testing.TB, dir string) kv.Store { return openDir(t, dir) },
		Disk:   openDisk,
		Exceptions: map[string]string{
			"Outage": "an embedded store has no backend that comes back: a log that fails ends the process",
		},
	})
}

func memOptions(fs vfs.FS) Options {
	o := Default()
	o.Dir, o.FS, o.MemTableBytes = "store", fs, 4<<20
	return o
}

func openMem(t testing.TB, fs vfs.FS) *Store {
	s, err := Open(memOptions(fs), zaptest.NewLogger(t))
	require.NoError(t, err)
	return s
}

func openDir(t testing.TB, dir string) *Store {
	o := Default()
	o.Dir, o.MinFreeBytes = dir, 0
	s, err := Open(o, zaptest.NewLogger(t))
	require.NoError(t, err)
	return s
}

func openDisk(t testing.TB, latency time.Duration) kvtest.Disk {
	mem := vfs.NewCrashableMem()
	d := &disk{FS: mem, latency: latency}
	return kvtest.Disk{
		Store: openMem(t, d),
		Clone: func() kv.Store { return openMem(t, mem.CrashClone(vfs.CrashCloneCfg{})) },
		Syncs: d.syncs.Load,
		Hold:  d.hold,
	}
}

func openDoubt(t testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
	d := &disk{FS: vfs.NewMem()}
	return openMem(t, d), func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		waiting, release := d.hold()
		t.Cleanup(release)
		go func() {
			<-waiting
			cancel()
		}()
		return ctx, release
	}
}

func openStall(t testing.TB) kvtest.Stall {
	s := openMem(t, vfs.NewMem())
	return kvtest.Stall{Store: s, Hold: func() (<-chan struct{}, func()) {
		reached, gate := make(chan struct{}), make(chan struct{})
		s.hold = func() {
			s.hold = nil
			close(reached)
			<-gate
		}
		return reached, func() { close(gate) }
	}}
}
