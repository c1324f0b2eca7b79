package local

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"ankusa.dev/services/internal/kv"
)

const (
	lookEvery    = time.Second
	maxAllowance = 64 << 20
)

// guard refuses writes while the disk is nearly full. It looks at the disk once a second at most while there is
// plenty, and more often the less there is. A file system that does not tell its free space is never full.
type guard struct {
	fs        vfs.FS
	dir       string
	min       int64
	now       func() time.Time
	allowance atomic.Int64 // bytes that may be written before the next look
	nextLook  atomic.Int64 // Unix nanoseconds
	mu        sync.Mutex   // one looks, the others go by the last look
	low       atomic.Bool
}

// admit returns kv.ErrUnavailable when a write of n bytes could meet a full disk.
func (g *guard) admit(n int) error {
	if g.min == 0 {
		return nil
	}
	now := g.now()
	if g.allowance.Add(-int64(n)) < 0 || now.UnixNano() > g.nextLook.Load() {
		g.look(now, int64(n))
	}
	if g.low.Load() {
		return fmt.Errorf("disk of %s has less than %d bytes free: %w", g.dir, g.min, kv.ErrUnavailable)
	}
	return nil
}

func (g *guard) look(now time.Time, n int64) {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	usage, err := g.fs.GetDiskUsage(g.dir)
	spare := int64(maxAllowance) * 4
	if err == nil {
		spare = int64(min(usage.AvailBytes, 1<<62)) - g.min - n
	}
	g.low.Store(spare < 0)
	g.allowance.Store(min(max(spare, 0)/4, maxAllowance))
	g.nextLook.Store(now.Add(lookEvery).UnixNano())
}
