package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func queueSink(tenant, source string) hook.SinkKey {
	return hook.SinkKey{Tenant: tenant, SourceID: source, Type: "sqs"}
}

// batching is a rig whose sinks of type sqs batch.
func batching(t *testing.T, change func(*Config)) *rig {
	return newRig(t, func(c *Config) {
		c.Batching = map[string]bool{"sqs": true}
		if change != nil {
			change(c)
		}
	})
}

func (r *rig) joinBatching(n byte, limit hook.Credit) {
	r.rejoin(n, Hello{Types: []string{"http", "sqs"}, Credit: limit})
}

func TestSinksThatBatchAreNotHeldToConcurrency(t *testing.T) {
	r := batching(t, func(c *Config) { c.Concurrency, c.SinkConcurrency, c.Default.Concurrency = 2, 2, 2 })
	r.joinBatching(1, hook.Credit{Slots: 10, Rows: 500, Bytes: 1 << 20})
	r.accept(queueSink("t", "a"), 300, 10)
	require.Equal(t, 300, r.running(queueSink("t", "a")))
	r.accept(sink("t", "b"), 10, 10)
	require.Equal(t, 2, r.running(sink("t", "b")), "others are, and have their slots")
	r.deliver()
	r.idle()
}

func TestSinksThatBatchAreHeldToTheWindows(t *testing.T) {
	r := batching(t, func(c *Config) { c.Default.MaxInflight = 50 })
	r.joinBatching(1, hook.Credit{Rows: 500, Bytes: 1 << 20})
	r.accept(queueSink("t", "a"), 300, 10)
	require.Equal(t, 50, r.running())
	r.deliver()
	r.idle()
}

func TestSinksThatBatchAreHeldToTheRunnersCredit(t *testing.T) {
	r := batching(t, nil)
	r.joinBatching(1, hook.Credit{Rows: 20, Bytes: 1000})
	r.accept(queueSink("t", "a"), 30, 10)
	require.Equal(t, 20, r.running(), "rows")
	r.deliver()
	r.accept(queueSink("t", "a"), 30, 300)
	require.Equal(t, 3, r.running(), "bytes")
	r.deliver()
	r.accept(queueSink("t", "a"), 2, 5000)
	require.Equal(t, 1, r.running(), "a hook larger than the credit goes alone")
	r.deliver()
	r.core.Credit(r.now, runnerID(1), hook.Credit{})
	r.accept(queueSink("t", "a"), 2, 10)
	require.Zero(t, r.running())
	r.core.Credit(r.now, runnerID(1), hook.Credit{Rows: 1, Bytes: 10})
	r.pump()
	require.Equal(t, 1, r.running())
	r.deliver()
	r.idle()
}

func TestTheBatchesOfADestinationMeetInOneRunner(t *testing.T) {
	r := batching(t, nil)
	for n := range byte(5) {
		r.joinBatching(n+1, hook.Credit{Rows: 10, Bytes: 1 << 20})
	}
	homes := func() map[hook.RunID]int {
		m := map[hook.RunID]int{}
		for _, l := range r.leases {
			m[l.Runner]++
		}
		return m
	}
	r.accept(queueSink("t", "a"), 5, 10)
	r.accept(queueSink("u", "a"), 5, 10)
	require.Len(t, homes(), 1, "also those of other tenants")
	home := r.leases[0].Runner
	r.accept(queueSink("t", "a"), 5, 10)
	require.Equal(t, 10, homes()[home])
	require.Len(t, homes(), 2, "what has no room there goes to the next best")
	r.deliver()
	r.lost(home[15])
	r.accept(queueSink("t", "a"), 5, 10)
	require.Len(t, homes(), 1)
	require.NotContains(t, homes(), home)
	r.deliver()
	r.pass(time.Minute)
	r.idle()
}

func TestABreakerHoldsASinkThatBatches(t *testing.T) {
	r := batching(t, nil)
	r.joinBatching(1, hook.Credit{Rows: 100, Bytes: 1 << 20})
	r.accept(queueSink("t", "a"), 10, 10)
	for len(r.leases) > 0 {
		r.first(hook.Transient)
	}
	require.Equal(t, 1, r.core.Stats().BreakersOpen)
	r.pass(30 * time.Second)
	require.Equal(t, 1, r.running(), "the probe")
	r.finish(10 * time.Minute)
	require.Empty(t, r.rows)
	r.idle()
}

func TestAKeyThatNoRunnerTakesKeepsNobodyElseWaiting(t *testing.T) {
	r := batching(t, nil)
	r.join(1, 2)
	r.accept(queueSink("t", "a"), 10, 10)
	r.accept(hook.SinkKey{Tenant: "t", SourceID: "b", Type: "kafka"}, 10, 10)
	r.accept(sink("t", "c"), 10, 10)
	require.Equal(t, 2, r.running(sink("t", "c")))
	r.deliver()
	require.Len(t, r.rows, 20)
	r.joinBatching(2, hook.Credit{Rows: 3, Bytes: 1 << 20})
	require.Equal(t, 3, r.running(queueSink("t", "a")))
}

func TestTheCapOfAKeyThatBatchesFollowsTheRunnersCredit(t *testing.T) {
	r := batching(t, nil)
	most := func() int { return r.core.mostBatched() }
	r.joinBatching(1, hook.Credit{Rows: 20})
	r.joinBatching(2, hook.Credit{Rows: 30})
	require.Equal(t, 51, most())
	r.joinBatching(2, hook.Credit{Rows: 5})
	require.Equal(t, 26, most(), "another hello replaces the first")
	r.core.Credit(r.now, runnerID(1), hook.Credit{Rows: 7})
	require.Equal(t, 13, most())
	r.core.Leaving(r.now, runnerID(1))
	require.Equal(t, 6, most())
	r.lost(1)
	r.lost(2)
	require.Equal(t, 1, most())
	r.joinBatching(2, hook.Credit{Rows: 9})
	require.Equal(t, 10, most())
}

func TestADestinationsRunnerIsLookedForAgainWhenOthersJoin(t *testing.T) {
	r := batching(t, nil)
	r.joinBatching(1, hook.Credit{Rows: 1000, Bytes: 1 << 20})
	const sinks = 8
	accept := func(tenant string) {
		for i := range uint16(sinks) {
			r.accept(hook.SinkKey{Tenant: tenant, SourceID: "a", Index: i, Type: "sqs"}, 1, 10)
		}
	}
	accept("t")
	require.Len(t, r.leases, sinks, "the keys stay, and know the runner that they prefer")
	for n := range byte(4) {
		r.joinBatching(n+2, hook.Credit{Rows: 1000, Bytes: 1 << 20})
	}
	accept("t")
	accept("u")
	older, fresh := r.leases[sinks:2*sinks], r.leases[2*sinks:]
	moved := 0
	for i := range fresh {
		require.Equal(t, fresh[i].Runner, older[i].Runner, "tenants of a source meet: what the older key knew is out of date")
		if fresh[i].Runner != runnerID(1) {
			moved++
		}
	}
	require.Positive(t, moved)
	r.deliver()
	r.idle()
}

func TestARunnerIsGivenNoBatchOfATypeThatItDoesNotTake(t *testing.T) {
	r := batching(t, nil)
	r.rejoin(1, Hello{Types: []string{"http", "kafka"}, Credit: hook.Credit{Slots: 5, Rows: 100, Bytes: 1 << 20}})
	r.accept(queueSink("t", "a"), 3, 10)
	require.Zero(t, r.running())
	r.joinBatching(2, hook.Credit{Rows: 100, Bytes: 1 << 20})
	require.Equal(t, 3, r.running())
	for _, l := range r.leases {
		require.Equal(t, runnerID(2), l.Runner)
	}
	r.deliver()
	r.idle()
}
