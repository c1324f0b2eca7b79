package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestConcurrencyIsTheRunnersCreditWhereNoneIsSet(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 0 })
	r.join(1, 3)
	r.accept(sink("t", "a"), 20, 1)
	require.Equal(t, 3, r.running())
	r.join(2, 4)
	require.Equal(t, 7, r.running())
	r.core.Credit(r.now, runnerID(2), hook.Credit{Slots: 6})
	r.pump()
	require.Equal(t, 9, r.running())
	r.core.Credit(r.now, runnerID(2), hook.Credit{Slots: 1})
	r.pump()
	require.Equal(t, 9, r.running(), "what runs, runs on")
	r.first(hook.Delivered)
	require.LessOrEqual(t, r.running(), 9)
}

func TestConcurrencyBoundsAttemptsAtOnce(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 0; c.Concurrency = 5 })
	r.join(1, 30)
	r.accept(sink("t", "a"), 20, 1)
	require.Equal(t, 5, r.running())
	r.configure(func(c *Config) { c.Concurrency = 7 })
	require.Equal(t, 7, r.running())
}

func TestATenantGetsHalfOfTheConcurrencyByDefault(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 0; c.Default.Concurrency = 0 })
	r.join(1, 9)
	r.accept(sink("t", "a"), 20, 1)
	require.Equal(t, 4, r.running())
	r.accept(sink("u", "a"), 20, 1)
	require.Equal(t, 4, r.running(sink("u", "a")))
	r.deliver()
	r.idle()
}

// A goodbye lowers the credit, and with it what a tenant may have.
func TestALeavingRunnersSlotsCountNoMore(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 0; c.Default.Concurrency = 0 })
	r.join(1, 4)
	r.join(2, 4)
	r.accept(sink("t", "a"), 20, 1)
	require.Equal(t, 4, r.running())
	r.core.Leaving(r.now, runnerID(2))
	r.core.Credit(r.now, runnerID(2), hook.Credit{Slots: 9})
	r.pump()
	require.Equal(t, 4, r.core.Stats().Slots)
	for range 3 {
		r.first(hook.Delivered)
	}
	require.Equal(t, 2, r.running())
}

func TestL13_SinkConcurrencyBoundsAKeyAlone(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 2 })
	r.join(1, 10)
	r.accept(sink("t", "a"), 20, 1)
	r.accept(sink("t", "b"), 20, 1)
	require.Equal(t, 2, r.running(sink("t", "a")))
	require.Equal(t, 2, r.running(sink("t", "b")))
}

// One destination hangs; nobody waits for it but its own rows.
func TestL13_L14_AHangingDestinationDelaysNobody(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SinkConcurrency = 2 })
	dead, alive := sink("t", "a"), sink("u", "b")
	r.join(1, 4)
	r.accept(dead, 50, 1)
	for range 100 {
		r.accept(alive, 1, 1)
		require.Equal(t, 1, r.running(alive), "starts at once")
		l := r.leases[len(r.leases)-1]
		require.Equal(t, alive, l.Delivery.Key)
		r.report(l, hook.Outcome{Class: hook.Delivered})
	}
	require.Equal(t, 2, r.running(dead))
}

// The scans of one page ask for equal shares.
func TestI8_APageIsDealtInEqualShares(t *testing.T) {
	r := newRig(t, nil)
	r.holdScans = true
	r.core.gate.open = false
	for _, tenant := range []string{"t", "u", "v"} {
		g := r.store(sink(tenant, "a"), 100, 1)
		r.core.Backlog(r.now, 0, g.Key, g.Start, 0, false)
	}
	r.core.gate.open = true
	r.pump()
	require.Len(t, r.asked, 3)
	for _, s := range r.asked {
		require.Equal(t, 4, s.Limit, "%+v", r.asked)
	}
}

// A tenant with several keys gets what others leave, key by key.
func TestL15_WhatATenantDoesNotUseIsLeftToOthers(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Default.MaxInflight = 10
		c.Tenants = map[string]Limits{"u": {MaxInflight: 1, MaxInflightBytes: 1 << 20}}
	})
	r.holdScans = true
	r.core.gate.open = false
	for _, key := range []hook.SinkKey{sink("t", "a"), sink("t", "b"), sink("u", "a")} {
		r.core.Backlog(r.now, 0, key, r.store(key, 100, 1).Start, 0, false)
	}
	r.core.gate.open = true
	r.pump()
	byTenant := map[string]int{}
	for _, s := range r.asked {
		byTenant[s.Key.Tenant] += s.Limit
	}
	require.Equal(t, map[string]int{"t": 10, "u": 1}, byTenant)
}

// backlogs gives tenants rows that nobody named, and has all of them looked for at once.
func (r *rig) backlogs(format string, tenants, rows int) {
	r.core.gate.open = false
	for i := range tenants {
		key := sink(fmt.Sprintf(format, i), "a")
		r.core.Backlog(r.now, 0, key, r.store(key, rows, 1).Start, 0, false)
	}
	r.core.gate.open = true
	r.pump()
}

func TestL15_TenantsThatAPageDidNotReachGoFirstNextTime(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch = 2 })
	r.holdScans = true
	r.backlogs("t%d", 5, 10)
	for len(r.asked) < 10 {
		r.answerScan()
		r.pump()
	}
	var order []string
	for _, s := range r.asked {
		order = append(order, s.Key.Tenant)
	}
	require.Equal(t, []string{"t0", "t1", "t2", "t3", "t4", "t0", "t1", "t2", "t3", "t4"}, order)
}

// Where no page reaches all tenants, a turn is of several rows while the window is empty, and of one as it fills up.
func TestI8_TurnsGetShorterAsTheWindowFillsUp(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 4, 20, 20 })
	r.holdScans = true
	const tenants = 11
	r.backlogs("t%02d", tenants, 10)
	for len(r.asked) < tenants {
		r.answerScan()
		r.pump()
	}
	var turns []int
	reached := map[string]bool{}
	for _, s := range r.asked[:tenants] {
		turns = append(turns, s.Limit)
		reached[s.Key.Tenant] = true
	}
	require.Equal(t, []int{4, 4, 3, 1, 2, 1, 1, 1, 1, 1, 1}, turns, "a page holds 4 rows")
	require.Len(t, reached, tenants, "each has its turn before anybody has a second one")
}

// A page reaches one tenant less than there are: whoever is being scanned waits for the next one as much as the others.
func TestI8_TurnsStayLongWhileScansAreUnderWay(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Batch, c.MaxInflight, c.Default.MaxInflight = 16, 1000, 100 })
	r.holdScans = true
	r.backlogs("t%02d", 17, 50)
	for range 40 {
		r.answerScan()
		r.pump()
		require.Equal(t, 8, r.asked[len(r.asked)-1].Limit)
	}
	reached := map[string]int{}
	for _, s := range r.asked {
		reached[s.Key.Tenant] += s.Limit
	}
	for tenant, rows := range reached {
		require.InDelta(t, 8*42/17, rows, 8, tenant)
	}
	require.Len(t, reached, 17)
}

func TestL15_ATenantAtItsWindowIsNotScanned(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Default.MaxInflight = 2 })
	r.accept(sink("t", "a"), 40, 1)
	n := len(r.asked)
	r.pass(time.Hour)
	require.Len(t, r.asked, n)
	r.join(1, 1)
	r.first(hook.Delivered)
	require.Greater(t, len(r.asked), n)
	require.Equal(t, 1, r.asked[n].Limit, "asks for what there is room for")
}

// Slots go to tenants in turn, whatever the number of their keys, and to each tenant's keys in turn.
func TestI8_SlotsGoToTenantsInTurnThenToTheirKeys(t *testing.T) {
	r := newRig(t, nil)
	for _, k := range []hook.SinkKey{sink("t", "a"), sink("t", "b"), sink("t", "c"), sink("u", "a")} {
		r.accept(k, 10, 1)
	}
	r.join(1, 1)
	counts, order := map[hook.SinkKey]int{}, []string{}
	for range 12 {
		counts[r.leases[0].Delivery.Key]++
		order = append(order, r.leases[0].Delivery.Key.Tenant)
		r.first(hook.Delivered)
	}
	require.Equal(t, 6, counts[sink("u", "a")])
	for _, s := range []string{"a", "b", "c"} {
		require.Equal(t, 2, counts[sink("t", s)])
	}
	for i := 1; i < len(order); i++ {
		require.NotEqual(t, order[i-1], order[i])
	}
}

// A commit wakes: nothing waits for a poll, and an idle core asks for none.
func TestL17_ANamedRowRunsAtOnce(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 1)
	require.Zero(t, r.wake, "an idle core sleeps for ever")
	r.accept(sink("t", "a"), 1, 1)
	require.Equal(t, 1, r.running())
	require.Empty(t, r.asked, "no scan")
	r.deliver()
	r.idle()
}

// The cost of the work of one tenant does not grow with tenants that wait for a row due next week.
func TestAScanCostsTenantsWithDueWorkOnly(t *testing.T) {
	cost := func(idle int) int {
		r := newRig(t, func(c *Config) { c.Default.MaxInflight = 3 })
		r.join(1, 1)
		for i := range idle {
			key := sink(fmt.Sprint("idle", i), "a")
			g := r.store(key, 1, 1)
			for _, d := range r.rows {
				if d.Key == key {
					d.Due = r.now.Add(7 * 24 * time.Hour)
				}
			}
			r.backlog(key, g.Start, 1)
		}
		before := len(r.asked)
		r.accept(sink("t", "a"), 30, 1)
		r.deliver()
		require.Zero(t, r.core.Stats().Backlogs)
		require.Len(t, r.rows, idle)
		return len(r.asked) - before
	}
	require.Equal(t, cost(0), cost(200))
}

// A sink type that no runner takes holds up nobody else, and starts when one comes.
func TestAKeyWithoutARunnerOfItsTypeWaitsAlone(t *testing.T) {
	r := newRig(t, nil)
	kafka := hook.SinkKey{Tenant: "t", SourceID: "b", Type: "kafka"}
	r.join(1, 2)
	r.accept(kafka, 3, 1)
	r.accept(sink("t", "a"), 3, 1)
	require.Equal(t, 2, r.running(sink("t", "a")))
	r.deliver()
	require.Zero(t, r.running())
	r.join(2, 2, "kafka")
	require.Equal(t, 2, r.running(kafka))
	r.deliver()
	require.Empty(t, r.rows)
	r.idle()
}

func TestI11_WhatHasNoWorkIsForgotten(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	for i := range 50 {
		r.accept(sink(fmt.Sprint("t", i), "a"), 1, 1)
		r.deliver()
	}
	r.notify(hook.Group{Key: sink("nothing", "a"), Start: r.now})
	r.idle()
	require.Empty(t, r.core.timers.h)
}
