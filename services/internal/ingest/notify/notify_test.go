package notify_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

func TestCommittedRowsAreNamedOnceAndInSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		for i := range 10 {
			r.Committed([]hook.Group{group(key(byte(i)), 5, 3), group(key(1), 6, 1)})
		}
		drained(t, r)
		_, hooks := r.leader.heard()
		require.Equal(t, 40, hooks)
		require.Equal(t, [][]hook.RunID{writerIDs}, r.leader.told().hellos)
		for i, m := range r.leader.told().messages {
			require.EqualValues(t, i+1, m.Sequence)
		}
		for _, times := range r.leader.told().hooks {
			require.Equal(t, 1, times)
		}
	})
}

func TestManyCommitsShareAMessageWhileTheLeaderIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(true, false)
		for range 500 {
			r.Committed([]hook.Group{group(key(0), 5, 2)})
		}
		r.leader.set(false, false)
		drained(t, r)
		messages, hooks := r.leader.heard()
		require.Equal(t, 1000, hooks)
		require.Less(t, messages, 10)
	})
}

// A commit may hold more rows than a message: they are split, with their lanes.
func TestNoMessageNamesMoreThanTheLeaderTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		large := group(key(1), 5, 2*wire.MaxNamed+100)
		ordered := group(key(2), 6, wire.MaxNamed)
		ordered.Ordered = true
		for i := range ordered.Hooks {
			ordered.Lanes, ordered.Members = append(ordered.Lanes, fmt.Sprint(i)), append(ordered.Members, uint32(i))
		}
		r.Committed([]hook.Group{group(key(0), 4, 10), large, ordered})
		drained(t, r)
		var named, members int
		for _, m := range r.leader.told().messages {
			rows := 0
			for _, g := range m.Groups {
				rows += len(g.Hooks)
				if g.Key == large.Key {
					require.Equal(t, large.Hooks[named:named+len(g.Hooks)], g.Hooks)
					named += len(g.Hooks)
				}
				for i := range g.Lanes {
					require.Equal(t, fmt.Sprint(members), g.Lanes[i])
					require.EqualValues(t, members, g.Members[i])
					require.Equal(t, ordered.Hooks[members], g.Hooks[i])
					members++
				}
			}
			require.LessOrEqual(t, rows, wire.MaxNamed)
		}
		require.Equal(t, len(large.Hooks), named)
		require.Equal(t, len(ordered.Hooks), members)
		require.Len(t, r.leader.told().messages, 4)
	})
}

func TestALeaderThatIsSlowToAcknowledgeGetsNoMoreThanAWindowOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(false, true)
		time.Sleep(time.Second)
		for range 200 {
			r.Committed([]hook.Group{group(key(0), 5, 1)})
			time.Sleep(time.Millisecond)
		}
		require.Len(t, r.leader.told().messages, 64)
		r.leader.set(false, false)
		drained(t, r)
		require.Len(t, r.leader.told().hooks, 200)
	})
}

func TestWhatIsNotAcknowledgedIsSentAgainToTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(false, true)
		r.Committed([]hook.Group{group(key(0), 5, 1)})
		time.Sleep(time.Second)
		r.Committed([]hook.Group{group(key(0), 6, 1)})
		time.Sleep(time.Second)
		first := len(r.leader.told().messages)
		require.NotZero(t, first)
		r.leader.set(false, false)
		drained(t, r)
		for id, times := range r.leader.told().hooks {
			require.GreaterOrEqual(t, times, 2, id)
		}
		again := r.leader.told().messages[first:]
		require.EqualValues(t, 1, again[0].Sequence, "under its own number")
		require.EqualValues(t, 2, again[1].Sequence)
	})
}

func TestTheFlagRisesAfterTwoSecondsAndFallsAfterCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(true, false)
		began := time.Now()
		r.Committed([]hook.Group{group(key(0), 5, 1)})
		time.Sleep(1900 * time.Millisecond)
		require.False(t, r.flag.up())
		time.Sleep(200 * time.Millisecond)
		require.True(t, r.flag.up())
		require.Equal(t, 2*time.Second, r.flag.moves().lastUp.Sub(began))
		time.Sleep(time.Minute)
		require.Equal(t, 1, r.flag.moves().ups)
		r.leader.set(false, false)
		time.Sleep(5 * time.Second)
		require.False(t, r.flag.up())
		_, hooks := r.leader.heard()
		require.Equal(t, 1, hooks)
	})
}

func TestAStoreThatCannotTakeTheFlagIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.flag.stick(errors.New("away"))
		r.leader.set(true, false)
		r.Committed([]hook.Group{group(key(0), 5, 1)})
		time.Sleep(30 * time.Second)
		require.False(t, r.flag.up())
		r.flag.stick(nil)
		time.Sleep(2 * time.Second)
		require.True(t, r.flag.up())
	})
}

func TestSteadyTrafficWithALeaderNeverMovesTheFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		for range 1000 {
			r.Committed([]hook.Group{group(key(0), 5, 1)})
			time.Sleep(10 * time.Millisecond)
		}
		drained(t, r)
		require.Zero(t, r.flag.moves().ups+r.flag.moves().downs)
	})
}

func TestAStreamThatAcknowledgesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.mu.Lock()
		r.leader.deaf = true
		r.leader.mu.Unlock()
		r.Committed([]hook.Group{group(key(0), 5, 1)})
		time.Sleep(10 * time.Second)
		require.Len(t, r.leader.told().hellos, 1)
		r.leader.mu.Lock()
		r.leader.deaf = false // a new stream would be heard
		r.leader.mu.Unlock()
		drained(t, r)
		require.Len(t, r.leader.told().hellos, 2)
	})
}

func TestBeyondTheBoundOnlySinksAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(true, false)
		const named = 65_536
		for i := range named / 256 {
			r.Committed([]hook.Group{group(key(0), hook.Timestamp(i+1), 256)})
		}
		for i := range 100 {
			r.Committed([]hook.Group{group(key(1), hook.Timestamp(1000+i), 256)})
		}
		r.Committed([]hook.Group{group(key(2), 900, 1)})
		require.False(t, r.Full())
		r.leader.set(false, false)
		drained(t, r)
		_, hooks := r.leader.heard()
		require.Equal(t, named, hooks)
		require.Equal(t, map[hook.SinkKey]wire.Backlog{
			key(1): {Partition: 3, Key: key(1), From: 1000}, key(2): {Partition: 3, Key: key(2), From: 900},
		}, r.leader.told().backlogs)
		r.Committed([]hook.Group{group(key(1), 5000, 1)})
		drained(t, r)
		_, hooks = r.leader.heard()
		require.Equal(t, named+1, hooks, "names again once there is room")
	})
}

func TestWhatCannotEvenBeRememberedBySinkStopsTheIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.leader.set(true, false)
		list := make([]store.Binding, 65_536)
		for i := range list {
			list[i].Key = hook.SinkKey{Tenant: "t", SourceID: "s", Index: uint16(i), Type: "log"}
		}
		r.Uncertain(1, list)
		require.True(t, r.Full())
		r.leader.set(false, false)
		time.Sleep(30 * time.Second)
		require.False(t, r.Full())
	})
}

func TestL11_RowsOfUnknownFateAreLookedForOnceTheirFateIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		r.Uncertain(4, []store.Binding{{Key: key(0)}, {Key: key(1), Ordered: true}})
		time.Sleep(store.CommitBound)
		require.Empty(t, r.leader.told().messages, "it could still land")
		time.Sleep(store.Finality)
		require.Equal(t, map[hook.SinkKey]wire.Backlog{
			key(0): {Partition: 4, Key: key(0)}, key(1): {Partition: 4, Key: key(1), Ordered: true},
		}, r.leader.told().backlogs)
		require.NoError(t, r.Leave(t.Context()))
		require.Zero(t, r.flag.moves().ups)
	})
}

func TestTheEndLeavesTheFlagForWhatNoLeaderHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		r.leader.set(true, false)
		r.Committed([]hook.Group{group(key(0), 5, 1)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Drain(ctx), context.DeadlineExceeded)
		r.stop()
		require.NoError(t, r.Leave(t.Context()))
		require.True(t, r.flag.up())
	})
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		r.Uncertain(0, []store.Binding{{Key: key(0)}})
		r.stop()
		require.NoError(t, r.Leave(t.Context()))
		require.True(t, r.flag.up(), "a commit that may yet land")
	})
}

func TestL02_ALeaderThatComesAndGoesIsFoundAgainEveryTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setUp(t)
		defer r.stop()
		for i := range 50 {
			r.leader.set(i%2 == 0, i%3 == 0)
			r.Committed([]hook.Group{group(key(0), 5, 10)})
			time.Sleep(300 * time.Millisecond)
		}
		r.leader.set(false, false)
		drained(t, r)
		_, hooks := r.leader.heard()
		require.Equal(t, 500, hooks)
	})
}
