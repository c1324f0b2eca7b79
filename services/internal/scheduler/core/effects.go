package core

import "ankusa.dev/services/internal/hook"

// Effects are what the driver is to do. The order within a list matters, between lists it does not.
type Effects struct {
	Reads     []Read
	Scans     []Scan
	LaneReads []LaneRead
	LaneScans []LaneScan
	Leases    []Lease
	// Settles are committed, answered by Settled: each is repeated until it lands or the term ends. Urgent are those that
	// are not to wait for others to be committed with: their lanes wait for them.
	Settles, Urgent []hook.Settlement
	Acks            []Ack
	Drops           []Drop
	// Forget removes the records of runners that hold nothing any more.
	Forget []hook.RunID
	Events []hook.Event
	Purged []Purged
	// Wake is when Tick is due; zero for never.
	Wake hook.Timestamp
}

// emptied is where the next effects gather: in the room of these, for those that come with every round.
func (e *Effects) emptied() Effects {
	return Effects{
		Leases: emptied(e.Leases), Settles: emptied(e.Settles), Urgent: emptied(e.Urgent), Acks: emptied(e.Acks),
	}
}

// maxKept bounds the room that is kept after a round with much to do.
const maxKept = 4096

func emptied[T any](s []T) []T {
	if cap(s) > maxKept {
		return nil
	}
	clear(s)
	return s[:0]
}

// Read asks for rows by name, answered by RowsRead or ReadFailed. Anew asks whether the hooks are there, too.
type Read struct {
	ID   uint64
	Rows []hook.Row
	Anew bool
}

// Scan asks for a page of a key's rows, answered by Scanned or ScanFailed. It begins behind (From, After); a zero After
// begins at From.
type Scan struct {
	ID        uint64
	Partition uint8
	Key       hook.SinkKey
	From      hook.Timestamp
	After     hook.ID
	Limit     int
}

// LaneRead asks for the first members of lanes, answered by LanesRead or LanesNotRead.
type LaneRead struct {
	ID    uint64
	Lanes []hook.LaneFrom
	Limit int // members of each
}

// LaneScan asks for lanes of a key in the order of their texts, each with its first members, answered by LanesScanned or
// LanesNotScanned.
type LaneScan struct {
	ID        uint64
	Partition uint8
	Key       hook.SinkKey
	From      string
	Limit     int // lanes
	Members   int // of each
	asked     hook.Timestamp
}

// Lease gives an attempt to a runner.
type Lease struct {
	Runner   hook.RunID
	Lease    hook.Lease
	Delivery hook.Delivery
	Attempt  uint32
	Source   Source
}

// Ack tells a runner that an outcome stands.
type Ack struct {
	Runner hook.RunID
	Lease  hook.Lease
}

// Drop takes a lease back.
type Drop struct {
	Runner hook.RunID
	Lease  hook.Lease
}

// Found is a row as the store has it.
type Found struct {
	Delivery *hook.Delivery // nil: no such row
	Hook     bool           // filled where asked
}
