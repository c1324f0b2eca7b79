package accept

import "sync/atomic"

// budget bounds what all requests together hold beyond a little each.
type budget struct {
	limit int64
	held  atomic.Int64
}

// take says whether n more fit, and holds them if so.
func (b *budget) take(n int64) bool {
	if b.held.Add(n) <= b.limit {
		return true
	}
	b.held.Add(-n)
	return false
}

func (b *budget) give(n int64) { b.held.Add(-n) }
