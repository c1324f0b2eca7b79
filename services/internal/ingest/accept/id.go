package accept

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"ankusa.dev/services/internal/hook"
)

// minter makes hook ids: UUIDs of version 7 that rise strictly within the process, even while the wall clock stands
// still or goes back.
type minter struct{ last atomic.Uint64 }

// mint takes the milliseconds of now, or whatever is needed to rise, in the upper 48 bits, a count within them in the
// next 12, and 62 random ones.
func (m *minter) mint(now time.Time) hook.ID {
	var next uint64
	for wall := uint64(now.UnixMilli()) << 12; ; {
		last := m.last.Load()
		if next = max(last+1, wall); m.last.CompareAndSwap(last, next) {
			break
		}
	}
	var id hook.ID
	binary.BigEndian.PutUint64(id[:8], next>>12<<16|0x7000|next&0xfff)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64()>>2|1<<63)
	return id
}
