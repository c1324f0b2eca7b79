package local

import (
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// source reads the two clocks of the machine: monotonic since some origin, and wall since the Unix epoch.
type source func() (mono, wall time.Duration)

func machineClock() source {
	origin := time.Now()
	return func() (time.Duration, time.Duration) {
		now := time.Now()
		return now.Sub(origin), time.Duration(now.UnixNano())
	}
}

// leadDecay is the fraction of elapsed time by which a clock ahead of the wall falls back towards it.
const leadDecay = 8

// clock makes timestamps. It follows the wall forward, never back: ahead of the wall, after a crash or a step of the
// wall, it runs on a little slower until the wall has caught up. Not safe for concurrent use.
type clock struct {
	read    source
	mono    time.Duration
	current time.Duration // since the Unix epoch
	lead    time.Duration // over the wall
	last    kv.Timestamp
}

// newClock is a clock above the mark.
func newClock(read source, mark kv.Timestamp) *clock {
	mono, wall := read()
	current := max(wall, time.Duration(mark.Millis())*time.Millisecond)
	return &clock{read: read, mono: mono, current: current, lead: current - wall, last: mark}
}

// awaitWall returns when the wall has passed the mark, if that takes no longer than a crash explains: a clock that leads
// shows times that are yet to come.
func awaitWall(read source, mark kv.Timestamp) {
	_, wall := read()
	if lead := time.Duration(mark.Millis()+1)*time.Millisecond - wall; lead > 0 && lead <= markAhead+time.Millisecond {
		<-time.After(lead)
	}
}

// next is above every timestamp before.
func (c *clock) next() kv.Timestamp {
	mono, wall := c.read()
	c.current = advance(c.current, mono-c.mono, wall)
	c.mono, c.lead = mono, c.current-wall
	c.last = max(c.last+1, hook.FromMillis(c.current.Milliseconds()))
	return c.last
}

func advance(current, elapsed, wall time.Duration) time.Duration {
	current += elapsed
	if lead := current - wall; lead > 0 {
		return current - min(lead, elapsed/leadDecay)
	}
	return wall
}
