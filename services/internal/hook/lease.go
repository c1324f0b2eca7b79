package hook

import "time"

// RunID is the identity of one run of a process: random, new at each start.
type RunID [16]byte

// Group is the rows of one commit for one sink: what a writer tells the leader.
type Group struct {
	Partition uint8
	Key       SinkKey
	// Start is the commit's start timestamp: due time and version of the rows.
	Start Timestamp
	Hooks []ID
	// Ordered sinks have lane members: Lanes and Members have one entry per hook. Else both are empty.
	Ordered bool
	Lanes   []string
	Members []uint32
}

// Lease names one lease: its number is unique within the epoch of the leader that gave it.
type Lease struct{ Epoch, ID uint64 }

// Credit is what a runner can hold at once, leases that run already included.
type Credit struct {
	Slots int   // attempts of sinks that do not batch
	Rows  int   // attempts of sinks that do
	Bytes int64 // of their hooks; a larger hook goes alone
}

// Report is the end of an attempt as its runner tells it. It applies only to the row version and attempt it names.
type Report struct {
	Lease   Lease
	Row     Row
	Attempt uint32
	Outcome Outcome
}

// Running is a lease that a runner still works on.
type Running struct {
	Lease   Lease
	Row     Row
	Attempt uint32
	// Left until the attempt is cut off.
	Left time.Duration
}
