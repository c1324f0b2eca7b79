package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestI7_AWindowBoundsClaimedRows(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight = 5 })
	r.accept(sink("t", "a"), 12, 10)
	require.Equal(t, 5, r.core.Stats().Claimed)
	r.join(1, 3)
	for len(r.leases) > 0 {
		r.first(hook.Delivered)
		require.LessOrEqual(t, r.core.Stats().Claimed, 5)
	}
	require.Empty(t, r.rows)
	r.idle()
}

func TestI7_AWindowBoundsClaimedBytes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflightBytes = 250 })
	r.accept(sink("t", "a"), 9, 100)
	require.Equal(t, 2, r.core.Stats().Claimed)
	require.EqualValues(t, 200, r.core.Stats().ClaimedBytes)
	r.join(1, 3)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestI7_RowsLargerThanTheWindowRunAlone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflightBytes = 250 })
	key := sink("t", "a")
	r.join(1, 8)
	r.accept(key, 2, 100)
	r.accept(key, 2, 1000)
	r.accept(key, 2, 100)
	for len(r.leases) > 0 {
		if r.leases[0].Delivery.Size == 1000 {
			require.Equal(t, 1, r.core.Stats().Claimed)
		}
		r.first(hook.Delivered)
	}
	require.Empty(t, r.rows)
	r.idle()
}

// A row that found no room waits in memory: asking the store again and again would find the same row.
func TestARowThatFindsNoRoomCostsNoScansWhileItWaits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflightBytes = 250 })
	key := sink("t", "a")
	r.join(1, 8)
	r.accept(key, 2, 100)
	r.accept(key, 3, 1000)
	r.pass(0)
	require.Equal(t, 2, r.running())
	require.Less(t, len(r.asked), 4)
	r.all(hook.Delivered)
	require.Equal(t, 1, r.running())
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

// Small rows that keep coming must not keep the window from ever being empty enough.
func TestARowLargerThanTheWindowIsNotPassedOverForEver(t *testing.T) {
	for _, global := range []bool{true, false} {
		r := newRig(t, func(c *Config) {
			if global {
				c.MaxInflightBytes = 250
			} else {
				c.Default.MaxInflightBytes = 250
			}
		})
		r.join(1, 8)
		r.accept(sink("t", "b"), 1, 100)
		r.accept(sink("t", "a"), 1, 1000)
		for range 20 {
			r.accept(sink("t", "b"), 1, 100)
			l := r.leases[0]
			r.report(l, hook.Outcome{Class: hook.Delivered})
			if l.Delivery.Size == 1000 {
				r.deliver()
				require.Empty(t, r.rows)
				r.idle()
				return
			}
		}
		t.Fatal("the large row was passed over")
	}
}

func TestARowThatWaitsForRoomGoesWithItsParkedKey(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflightBytes = 250; c.Breakers.Failures = 1 })
	key := sink("t", "a")
	r.join(1, 8)
	r.accept(key, 1, 100)
	r.accept(key, 1, 1000)
	r.first(hook.Transient)
	require.Zero(t, r.running())
	require.Zero(t, r.core.Stats().Claimed)
	r.accept(sink("u", "b"), 1, 100)
	r.deliver()
	r.pass(r.cfg.Breakers.Open)
	for range 3 {
		r.deliver()
		r.pass(r.cfg.Breakers.Open)
	}
	require.Empty(t, r.rows)
	r.idle()
}

func TestL15_ATenantsWindowLeavesRoomToOthers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 3; c.Default.MaxInflightBytes = 1 << 20 })
	r.accept(sink("heavy", "a"), 50, 10)
	require.Equal(t, 3, r.core.Stats().Claimed)
	r.accept(sink("light", "a"), 1, 10)
	require.Equal(t, 4, r.core.Stats().Claimed)
	r.join(1, 100)
	require.Equal(t, 1, r.running(sink("light", "a")))
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestATenantsByteWindow(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflightBytes = 250 })
	r.accept(sink("t", "a"), 9, 100)
	r.accept(sink("u", "a"), 9, 100)
	require.Equal(t, 4, r.core.Stats().Claimed)
	r.join(1, 8)
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

// Limits change while rows are claimed and run: nothing is dropped, and the next start obeys.
func TestConfigureChangesLimitsLive(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 4 })
	key := sink("t", "a")
	r.join(1, 50)
	r.accept(key, 30, 10)
	require.Equal(t, 4, r.running())
	r.configure(func(c *Config) {
		c.Tenants = map[string]Limits{"t": {MaxInflight: 6, MaxInflightBytes: 1 << 20, Concurrency: 5}}
	})
	require.Equal(t, 6, r.core.Stats().Claimed)
	require.Equal(t, 5, r.running())
	r.configure(func(c *Config) { c.Tenants["t"] = Limits{MaxInflight: 2, MaxInflightBytes: 1 << 20, Concurrency: 1} })
	require.Equal(t, 5, r.running(), "nothing is dropped")
	for r.running() > 1 {
		r.first(hook.Delivered)
	}
	for len(r.leases) > 0 {
		require.Equal(t, 1, r.running())
		require.LessOrEqual(t, r.core.Stats().Claimed, 2)
		r.first(hook.Delivered)
	}
	require.Empty(t, r.rows)
	r.idle()
}
