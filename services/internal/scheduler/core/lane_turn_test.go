package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestI8_ANamedLaneDoesNotPassThoseThatWait(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight = 40 })
	r.join(1, 40)
	r.enter(laneNames(60)...)
	r.holdReads = true
	for range 20 {
		r.first(hook.Delivered)
	}
	require.Positive(t, r.core.room(r.core.tenants["t"]), "a page takes less than there is room for")
	last := r.enter("a")
	r.holdReads = false
	r.pump()
	r.deliver()
	require.Equal(t, last[0], r.begun()[60])
	r.idle()
}

// Nobody named these lanes; a lower one is busy all the time.
func TestI8_ABusyLaneDoesNotKeepTheCursorFromOthers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight = 4 })
	r.join(1, 4)
	g := r.members(r.tick(), laneNames(30)...)
	r.core.Backlog(r.now, 0, g.Key, 0, 30, true)
	r.pump()
	for range 100 {
		r.enter("a")
		r.first(hook.Delivered)
	}
	for _, id := range g.Hooks {
		require.Contains(t, r.begun(), id)
	}
	r.deliver()
	r.idle()
}

// A crowd of lanes that are never empty fills the window; a row of another sink, or of another tenant, comes in.
func TestI8_LanesThatAreNeverEmptyGiveTheirPlacesBack(t *testing.T) {
	for name, other := range map[string]hook.SinkKey{"to another sink": sink("t", "b"), "to another tenant": sink("u", "a")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.MaxInflight, c.Breakers.Failures = 8, 0 })
			r.join(1, 8)
			var crowd []string
			for i := range 8 {
				crowd = append(crowd, slices.Repeat([]string{fmt.Sprint("l", i)}, 10*readAhead)...)
			}
			r.enter(crowd...)
			require.Len(t, r.leases, 8)
			light := r.accept(other, 1, 1)
			for range 8 * (readAhead + 1) {
				r.first(hook.Delivered)
			}
			require.Contains(t, r.begun(), light[0])
			r.deliver()
			require.Empty(t, r.rows)
			r.idle()
		})
	}
}

func TestL07_TheLanesThatEndedLastAreRemembered(t *testing.T) {
	e := endedLanes{most: 4}
	id := func(n int) laneID { return laneID{text: fmt.Sprint(n)} }
	for at := range 100 {
		e.forget(id(at % 6))
		e.put(id(at%6), hook.Timestamp(at+1))
		for back := range min(4, at+1) {
			then := at - back
			want := hook.Place{Start: hook.Timestamp(then + 1)}
			require.Equal(t, want, e.from(id(then%6), hook.Place{Start: 1000}), "%d before %d", back, at)
		}
		require.LessOrEqual(t, len(e.at), 4)
	}
}

// The head was leased again before its first runner was heard of.
func TestI6_ALaneWaitsForALeaseThatIsDroppedAtAHello(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	ids := r.enter("x", "x")
	old := runningOf(r.leases[0], 20*time.Second)
	r.elect(nil)
	r.join(2, 10)
	r.core.Backlog(r.now, 0, sink("t", "a"), 0, 2, true)
	r.pump()
	r.rejoin(1, Hello{Credit: hook.Credit{Slots: 10}, Running: []hook.Running{old}})
	require.Len(t, r.drops, 1)
	r.first(hook.Delivered)
	require.Empty(t, r.leases)
	r.pass(20*time.Second + r.cfg.LeaseMargin)
	require.Len(t, r.leases, 1)
	require.Equal(t, ids[1], r.leases[0].Delivery.Hook)
	r.deliver()
	r.idle()
}

func TestI9_HeadsOfAParkedKeyEndAtTheirHorizon(t *testing.T) {
	for name, fail := range map[string]bool{"": false, "after a failed read": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Breakers = Breakers{Failures: 2, Open: time.Hour, MaxOpen: time.Hour} })
			s := r.sources["a"]
			s.Policy.Horizon = 10 * time.Minute
			r.sources["a"] = s
			r.join(1, 2)
			ids := r.enter("a", "b", "a", "b")
			r.first(hook.Transient)
			r.first(hook.Transient)
			r.pass(9 * time.Minute)
			require.Empty(t, r.buried)
			r.holdReads = fail
			r.pass(90 * time.Second)
			for _, q := range r.laneReads {
				r.core.LanesNotRead(r.now, q)
			}
			r.laneReads, r.holdReads = nil, false
			r.pump()
			r.pass(10 * time.Second)
			require.Len(t, r.buried, 2)
			require.Contains(t, r.buried, hook.Ref{Hook: ids[0]})
			require.Contains(t, r.buried, hook.Ref{Hook: ids[1]})
			r.finish(2 * time.Hour)
			require.Len(t, r.buried, 2, "those behind are tried when the breaker lets them")
			require.Empty(t, r.rows)
			r.idle()
		})
	}
}

func TestL13_AReadOfLanesIsForOneSink(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	r.holdReads = true
	groups := []hook.Group{r.members(r.tick(), "x", "y"), r.members(r.tick(), "x", "z"), r.members(r.tick(), "v")}
	groups[1].Key.Tenant = "u"
	groups[2].Partition = 1
	r.core.Notified(r.now, groups)
	r.pump()
	require.Len(t, r.laneReads, 3)
	r.core.LanesNotRead(r.now, r.laneReads[2])
	for key, k := range r.core.keys {
		require.Equal(t, key.Tenant == "u", k.hesitates != 0)
	}
}

// A page shows the first members of a lane. The one that nobody named stands behind them.
func TestI2_AMemberBehindThePageOfAHeldLaneIsFound(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 1)
	r.enter(slices.Repeat([]string{"a"}, readAhead)...)
	lost := r.members(r.tick(), "a")
	r.core.Backlog(r.now, 0, lost.Key, 0, 1, true)
	r.pump()
	r.deliver()
	require.Contains(t, r.begun(), lost.Hooks[0])
	r.idle()
}
