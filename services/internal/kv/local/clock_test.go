package local

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"pgregory.net/rapid"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// dial is a machine's two clocks, moved by hand.
type dial struct{ mono, wall time.Duration }

func (d *dial) read() (time.Duration, time.Duration) { return d.mono, d.wall }

func (d *dial) pass(t time.Duration) { d.mono, d.wall = d.mono+t, d.wall+t }

const noon = 1_800_000_000 * time.Second

func TestClockFollowsTheWallForward(t *testing.T) {
	d := &dial{wall: noon}
	c := newClock(d.read, 0)
	require.Equal(t, hook.FromMillis(noon.Milliseconds()), c.next())
	d.wall += time.Hour
	require.Equal(t, hook.FromMillis((noon + time.Hour).Milliseconds()), c.next())
}

func TestClockDoesNotFollowTheWallBack(t *testing.T) {
	d := &dial{wall: noon}
	c := newClock(d.read, 0)
	before := c.next()
	d.wall -= time.Hour
	require.Equal(t, before+1, c.next())
	d.pass(8 * time.Second)
	require.Equal(t, 7*time.Second, c.next().Sub(before), "it runs on, a little slower")
}

func TestClockLeadFallsBackToTheWall(t *testing.T) {
	d := &dial{wall: noon}
	mark := hook.FromMillis(noon.Milliseconds()).Add(markAhead)
	c := newClock(d.read, mark)
	require.Equal(t, mark+1, c.next())
	for range 100 {
		d.pass(markAhead * leadDecay / 100)
		c.next()
	}
	require.Equal(t, d.wall.Milliseconds(), c.next().Millis())
}

func TestClockStrictlyIncreases(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &dial{wall: noon}
		c := newClock(d.read, hook.Timestamp(rapid.Uint64Range(0, uint64(hook.FromMillis(2*noon.Milliseconds()))).Draw(t, "mark")))
		last := c.last
		for range 50 {
			d.mono += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "elapsed"))
			d.wall += time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "step"))
			ts := c.next()
			if ts <= last {
				t.Fatalf("%d after %d", ts, last)
			}
			last = ts
		}
	})
}

// After a power cut the wall may stand anywhere; no timestamp that anybody got may come again.
func TestClockStaysAheadOverCrashAndStepBack(t *testing.T) {
	mem := vfs.NewCrashableMem()
	d := &dial{wall: noon}
	open := func(fs vfs.FS) *Store {
		s, err := openAt(memOptions(fs), zaptest.NewLogger(t), d.read)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	s := open(mem)
	for range 5 {
		var last kv.Timestamp
		for range 20 {
			d.pass(markAhead / 7)
			now, err := s.Now(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.View(t.Context(), func(r kv.Reader) error {
				require.Greater(t, r.Timestamp(), now)
				last = r.Timestamp()
				return nil
			}))
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		d.wall -= time.Hour
		s = open(mem)
		now, err := s.Now(t.Context())
		require.NoError(t, err)
		require.Greater(t, now, last)
		require.LessOrEqual(t, now.Sub(last), markAhead+time.Millisecond)
	}
}

func TestOrderlyRestartCostsNoLead(t *testing.T) {
	mem, d := vfs.NewMem(), &dial{wall: noon}
	for range 100 {
		s, err := openAt(memOptions(mem), zaptest.NewLogger(t), d.read)
		require.NoError(t, err)
		now, err := s.Now(t.Context())
		require.NoError(t, err)
		require.Equal(t, d.wall.Milliseconds(), now.Millis())
		require.NoError(t, s.Close())
	}
}

// A store whose process crashes again and again, as one that is killed for its memory, must not run ahead of the wall.
func TestCrashesDoNotAddUpToALead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		for range 30 {
			s, err := Open(memOptions(mem), zaptest.NewLogger(t))
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
			now, err := s.Now(t.Context())
			require.NoError(t, err)
			require.Equal(t, time.Now().UnixMilli(), now.Millis())
			mem = mem.CrashClone(vfs.CrashCloneCfg{})
			require.NoError(t, s.Close())
		}
	})
}

// After a step of the wall nobody waits for it, and the clock leads by little more than the step.
func TestCrashesAddLittleToTheLeadOfAStep(t *testing.T) {
	mem, d := vfs.NewCrashableMem(), &dial{wall: noon}
	for range 30 {
		s, err := openAt(memOptions(mem), zaptest.NewLogger(t), d.read)
		require.NoError(t, err)
		d.pass(time.Second)
		now, err := s.Now(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Duration(now.Millis())*time.Millisecond-d.wall, time.Hour+time.Second+markAhead)
		if d.wall > noon {
			d.wall = noon - time.Hour // once, back by an hour and a second
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, s.Close())
	}
}
