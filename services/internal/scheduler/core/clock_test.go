package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// TestAWriterCannotMoveTheClock: what a writer names is a claim, and horizons are not its to end.
func TestAWriterCannotMoveTheClock(t *testing.T) {
	now := hook.FromMillis(simStart)
	c := New(Config{Batch: 8, MaxInflight: 8, MaxInflightBytes: 1 << 20}, Term{Epoch: 1, Now: now}, func() float64 { return 0 })
	key := hook.SinkKey{Tenant: "a", SourceID: "s", Type: "log"}
	for _, start := range []hook.Timestamp{now.Add(48 * time.Hour), ^hook.Timestamp(0)} {
		c.Notified(now, []hook.Group{{Key: key, Start: start, Hooks: []hook.ID{{1}}}})
		c.Backlog(now, 0, key, start, 0, false)
		require.Equal(t, now, c.now)
	}
}
