package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestPressureIsTheAgeOfTheOldestRowThatIsDueAndNotBegun(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxInflight = 4 })
	require.Equal(t, Pressure{}, r.core.Pressure(r.now))
	a := sink("t", "a")
	r.accept(a, 2, 10)
	r.pass(3 * time.Second)
	require.Equal(t, Pressure{Lag: 3 * time.Second}, r.core.Pressure(r.now))
	r.join(1, 2) // begins gently
	require.Equal(t, Pressure{Lag: 3 * time.Second}, r.core.Pressure(r.now))
	r.deliver()
	require.Equal(t, Pressure{}, r.core.Pressure(r.now))
	r.accept(a, 5, 10)
	r.pass(time.Second)
	require.Equal(t, Pressure{Lag: time.Second, Full: true}, r.core.Pressure(r.now))
	r.all(hook.Transient)
	r.deliver()
	require.Equal(t, Pressure{}, r.core.Pressure(r.now), "what waits for another attempt is not due")
	r.finish(time.Minute)
	r.idle()
}

// Where the first row may lie nobody knows, so that the pressure is that since somebody asked.
func TestPressureOfABacklogFromTheBeginning(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		r := newRig(t, nil)
		r.holdScans = true
		r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, ordered)
		r.pass(2 * time.Second)
		r.core.Backlog(r.now, 0, sink("t", "a"), 0, 3, ordered)
		require.Equal(t, 2*time.Second, r.core.Pressure(r.now).Lag)
	}
}

func TestRowsBehindAnOpenBreakerMakeNoPressure(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 3)
	r.park(sink("t", "a"), 9)
	r.pass(time.Second)
	require.Equal(t, Pressure{}, r.core.Pressure(r.now))
	require.True(t, r.core.Quiet())
}

func TestTheCoreIsQuietWhenNothingIsClaimedRunningOrDue(t *testing.T) {
	r := newRig(t, nil)
	require.True(t, r.core.Quiet())
	a := sink("t", "a")
	r.accept(a, 1, 10)
	require.False(t, r.core.Quiet(), "claimed")
	r.join(1, 2)
	require.False(t, r.core.Quiet(), "running")
	r.holdSettles = true
	r.first(hook.Transient)
	require.False(t, r.core.Quiet(), "being settled")
	r.holdSettles = false
	r.pump()
	require.True(t, r.core.Quiet(), "a back-off is not waited for")
	r.holdReads, r.holdScans = true, true
	r.notify(r.store(a, 1, 10))
	require.False(t, r.core.Quiet(), "being read")
	r.holdReads = false
	r.pump()
	r.deliver()
	r.backlog(a, 0, 1)
	require.False(t, r.core.Quiet(), "being looked for")
	r.holdScans = false
	r.pump()
	require.True(t, r.core.Quiet())
	r.finish(time.Minute)
	r.idle()
}
