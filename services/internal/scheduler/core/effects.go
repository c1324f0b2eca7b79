package core

import "ankusa.dev/services/internal/hook"

// Effects are what the driver is to do. The order within a list matters, between lists it does not.
type Effects struct {
	Reads     []Read
	Scans     []Scan
	LaneReads []LaneRead
	LaneScans []LaneScan
	Leases    []Lease
	Settles   []Settle
	Acks      []Ack
	Drops     []Drop
	// Forget removes the records of runners that hold nothing any more.
	Forget []hook.RunID
	Events []hook.Event
	Purged []Purged
	// Wake is when Tick is due; zero for never.
	Wake hook.Timestamp
}

// room is where the next effects gather: as many as these of those that come with every round.
func (e *Effects) room() Effects {
	return Effects{Leases: room(e.Leases), Settles: room(e.Settles), Acks: room(e.Acks)}
}

func room[T any](before []T) []T {
	if len(before) == 0 {
		return nil
	}
	return make([]T, 0, len(before))
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

// Settle commits what became of a claimed row, answered by Settled. It is repeated until it lands or the term ends.
type Settle struct {
	Delivery hook.Delivery
	Verdict  hook.Verdict
	Position hook.Timestamp
	Claimed  hook.Timestamp
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
