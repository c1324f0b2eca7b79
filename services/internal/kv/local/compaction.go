package local

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions lets the engine run one compaction at a time. The engine's own scheduler looks ten times a second whether
// more may run by now, which wakes an idle process for nothing: here the number never changes, and all that can make
// room for a compaction that waits is the end of another.
type compactions struct {
	db pebble.DBForCompaction

	mu       sync.Mutex
	running  int
	closed   bool
	granting sync.WaitGroup // calls of db that are under way
}

var _ pebble.CompactionScheduler = (*compactions)(nil)

// oneCompaction is the engine's setting that goes with it.
func oneCompaction() (lower, upper int) { return 1, 1 }

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister implements pebble.CompactionScheduler. The engine is not called any more once it has returned.
func (c *compactions) Unregister() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.granting.Wait()
}

// TrySchedule implements pebble.CompactionScheduler. Who is refused is remembered by the engine and asked for by Done.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running > 0 {
		return false, nil
	}
	c.running++
	return true, granted{c}
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. There is nothing to update.
func (c *compactions) UpdateGetAllowedWithoutPermission() {}

// done ends one compaction and begins the next that waits. The engine may begin another by TrySchedule in between: then
// there are two for once, and the first of them to end begins none.
func (c *compactions) done() {
	c.mu.Lock()
	c.running--
	free := !c.closed && c.running < 1 // below 0 where one ended before its grant was counted
	if free {
		c.granting.Add(1)
	}
	c.mu.Unlock()
	if !free {
		return
	}
	defer c.granting.Done()
	if waits, _ := c.db.GetWaitingCompaction(); !waits || !c.db.Schedule(granted{c}) {
		return
	}
	c.mu.Lock()
	c.running++
	c.mu.Unlock()
}

// granted is the permission for one compaction.
type granted struct{ *compactions }

// Started implements pebble.CompactionGrantHandle.
func (granted) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (granted) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (granted) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements pebble.CompactionGrantHandle.
func (g granted) Done() { g.done() }
