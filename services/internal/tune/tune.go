// Package tune fits the runtime to what the processes do. What the operator has set in the environment stands.
package tune

import (
	"os"
	"runtime"
	"runtime/debug"
)

// gcPercent trades memory for processor time: the live heap is small beside what passes through, so that the runtime's
// default collects many times a second under load.
const gcPercent = 800

// Collector sets how often the runtime collects, unless GOGC is set.
func Collector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// forDisk is how many threads wait for the disk at most times: the one that syncs the log.
const forDisk = 1

// Processors gives the runtime one processor more than it may use at once, unless GOMAXPROCS is set. It is for a process
// with a store on its own disk: a thread that comes back from the disk with a commit that many wait for has to find a
// processor, and queues for one behind all that is runnable where there is no spare one. From then on the runtime does
// not follow a container's quota when that changes; where one is tight, GOMAXPROCS keeps bursts from being throttled.
func Processors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.SetDefaultGOMAXPROCS() // what the machine or its container has
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + forDisk)
	}
}
