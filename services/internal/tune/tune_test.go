package tune

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessorsAreThoseOfTheMachineAndOneMore(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	restoreProcessors(t)
	runtime.SetDefaultGOMAXPROCS()
	machine := runtime.GOMAXPROCS(0)
	for range 2 { // however often a store is opened
		Processors()
		require.Equal(t, machine+forDisk, runtime.GOMAXPROCS(0))
	}
}

func TestTheCollectorRunsLessOftenThanByDefault(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	Collector()
	require.Equal(t, gcPercent, debug.SetGCPercent(100))
}

func TestTheOperatorsSettingsStand(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1")
	t.Setenv("GOGC", "50")
	restoreProcessors(t)
	runtime.GOMAXPROCS(1)
	before := debug.SetGCPercent(50)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	Processors()
	Collector()
	require.Equal(t, 1, runtime.GOMAXPROCS(0))
	require.Equal(t, 50, debug.SetGCPercent(50))
}

func restoreProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}
