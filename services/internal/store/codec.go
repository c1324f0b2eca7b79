package store

import (
	"bytes"
	"time"

	"ankusa.dev/services/internal/hook"
)

// chunkSize bounds the bytes of a body that stand in one value.
const chunkSize = 1 << 20

// Fields of a hook's value; tenant and id stand in its key.
const (
	hookSource = iota + 2
	hookIncarnation
	hookReceivedAt
	hookVerification
	hookFlagged
	hookDedupeKey
	hookHeader
	hookBody
	hookChunks // further chunks of the body, in keys of their own
	hookStart  // start timestamp of the commit
	hookSink
)

func encodeHook(h *hook.Hook, start hook.Timestamp, sinks []Binding) []byte {
	first, chunks := h.Body, 0
	if len(first) > chunkSize {
		chunks = (len(first) - 1) / chunkSize
		first = first[:chunkSize]
	}
	e := newValue(h.StoredSize()-len(h.Body)+len(first)+8*len(h.Headers)+64).
		text(hookSource, h.SourceID).
		uint(hookIncarnation, h.Incarnation).
		uint(hookReceivedAt, uint64(h.ReceivedAt)).
		uint(hookVerification, uint64(h.Verification)).
		uint(hookFlagged, bit(h.Flagged)).
		text(hookDedupeKey, h.DedupeKey)
	for _, f := range h.Headers {
		e = e.message(hookHeader, encoder(make([]byte, 0, 128)).text(2, f.Name).text(3, f.Value))
	}
	e = e.bytes(hookBody, first).uint(hookChunks, uint64(chunks)).fixed(hookStart, uint64(start))
	for _, s := range sinks {
		e = e.message(hookSink, encoder(nil).uint(2, uint64(s.Key.Index)).text(3, s.Key.Type).
			uint(4, bit(s.Ordered)).text(5, s.Lane))
	}
	return e
}

// storedHook is a hook's value as read; body chunks beyond the first are still missing.
type storedHook struct {
	hook.Hook
	chunks int
	start  hook.Timestamp
	sinks  []Binding
}

func decodeHook(tenant string, id hook.ID, b []byte) (*storedHook, error) {
	h := &storedHook{Hook: hook.Hook{Tenant: tenant, ID: id, Body: []byte{}}}
	err := decode("hook", b, func(f field) error {
		switch f.num {
		case hookSource:
			h.SourceID = string(f.b)
		case hookIncarnation:
			h.Incarnation = f.v
		case hookReceivedAt:
			h.ReceivedAt = int64(f.v)
		case hookVerification:
			h.Verification = hook.Verification(f.v)
		case hookFlagged:
			h.Flagged = f.flag()
		case hookDedupeKey:
			h.DedupeKey = string(f.b)
		case hookHeader:
			return h.header(f.b)
		case hookBody:
			h.Body = f.b
		case hookChunks:
			h.chunks = int(f.v)
		case hookStart:
			h.start = hook.Timestamp(f.v)
		case hookSink:
			return h.sink(f.b)
		}
		return nil
	})
	return h, err
}

func (h *storedHook) header(b []byte) error {
	var header hook.Header
	err := fields(b, func(f field) error {
		switch f.num {
		case 2:
			header.Name = string(f.b)
		case 3:
			header.Value = string(f.b)
		}
		return nil
	})
	h.Headers = append(h.Headers, header)
	return err
}

func (h *storedHook) sink(b []byte) error {
	s := Binding{Key: hook.SinkKey{Tenant: h.Tenant, SourceID: h.SourceID}}
	err := fields(b, func(f field) error {
		switch f.num {
		case 2:
			s.Key.Index = uint16(f.v)
		case 3:
			s.Key.Type = string(f.b)
		case 4:
			s.Ordered = f.flag()
		case 5:
			s.Lane = string(f.b)
		}
		return nil
	})
	h.sinks = append(h.sinks, s)
	return err
}

// Fields of a row's value.
const (
	rowVersion = iota + 2
	rowIncarnation
	rowSize
	rowSinks
	rowAttempts
	rowLost
	rowFirstAttemptAt
	rowReplay
	rowAttempt
	rowHook   // lane members only: their key does not hold it
	rowDue    // lane members only
	rowReason // dead letters only, like all below
	rowClass
	rowSinkKey
	rowKind   // histories only
	rowMember // of a lane: where a wake-up's member stands, and which lane a dead letter was of
)

func appendState(e encoder, version hook.Timestamp, s *hook.State) encoder {
	e = e.fixed(rowVersion, uint64(version)).
		uint(rowIncarnation, s.Incarnation).
		uint(rowSize, uint64(s.Size)).
		uint(rowSinks, uint64(s.Sinks)).
		uint(rowAttempts, uint64(s.Attempts)).
		uint(rowLost, uint64(s.Lost)).
		fixed(rowFirstAttemptAt, uint64(s.FirstAttemptAt)).
		text(rowReplay, s.ReplayID)
	for i := range s.History {
		e = e.message(rowAttempt, encodeAttempt(&s.History[i]))
	}
	return e
}

func encodeRow(r *hook.Row, version hook.Timestamp, s *hook.State) []byte {
	e := appendState(newValue(48), version, s)
	if r.Ordered {
		e = e.bytes(rowHook, r.Hook[:]).fixed(rowDue, uint64(r.Due))
	}
	return e
}

// encodeWake is the value of a wake-up row: where its member stands, and nothing of the member's state.
func encodeWake(r *hook.Row) []byte { return newValue(32+len(r.Lane)).member(r.Lane, r.Place) }

func (e encoder) member(lane string, p hook.Place) encoder {
	return e.message(rowMember, encoder(make([]byte, 0, 24+len(lane))).
		text(2, lane).fixed(3, uint64(p.Start)).uint(4, uint64(p.Index)))
}

func memberField(b []byte, r *hook.Row) error {
	r.Ordered = true
	return fields(b, func(f field) error {
		switch f.num {
		case 2:
			r.Lane = string(f.b)
		case 3:
			r.Place.Start = hook.Timestamp(f.v)
		case 4:
			r.Place.Index = uint32(f.v)
		}
		return nil
	})
}

// decodeRow fills what the value holds; the caller has filled what the key holds.
func decodeRow(b []byte, d *hook.Delivery) error {
	return decode("row", b, deliveryField(d))
}

func deliveryField(d *hook.Delivery) func(field) error {
	return func(f field) error {
		switch f.num {
		case rowVersion:
			d.Version = hook.Timestamp(f.v)
		case rowHook:
			copy(d.Hook[:], f.b)
		case rowDue:
			d.Due = hook.Timestamp(f.v)
		case rowMember:
			return memberField(f.b, &d.Row)
		default:
			return stateField(f, &d.State)
		}
		return nil
	}
}

func stateField(f field, s *hook.State) error {
	switch f.num {
	case rowIncarnation:
		s.Incarnation = f.v
	case rowSize:
		s.Size = uint32(f.v)
	case rowSinks:
		s.Sinks = uint16(f.v)
	case rowAttempts:
		s.Attempts = uint32(f.v)
	case rowLost:
		s.Lost = uint32(f.v)
	case rowFirstAttemptAt:
		s.FirstAttemptAt = hook.Timestamp(f.v)
	case rowReplay:
		s.ReplayID = string(f.b)
	case rowAttempt:
		a, err := decodeAttempt(f.b)
		s.History = append(s.History, a)
		return err
	}
	return nil
}

func encodeAttempt(a *hook.Attempt) encoder {
	return encoder(make([]byte, 0, 48)).
		uint(2, uint64(a.Number)).fixed(3, uint64(a.At)).uint(4, uint64(a.Class)).uint(5, uint64(a.Status)).
		uint(6, uint64(a.Duration)).text(7, a.Reason).bytes(8, a.Response)
}

func decodeAttempt(b []byte) (a hook.Attempt, err error) {
	err = fields(b, func(f field) error {
		switch f.num {
		case 2:
			a.Number = uint32(f.v)
		case 3:
			a.At = hook.Timestamp(f.v)
		case 4:
			a.Class = hook.Class(f.v)
		case 5:
			a.Status = uint16(f.v)
		case 6:
			a.Duration = time.Duration(f.v)
		case 7:
			a.Reason = string(f.b)
		case 8:
			a.Response = bytes.Clone(f.b)
		}
		return nil
	})
	return a, err
}

// DeadLetter is a delivery that was given up. Of its row it keeps the lane, and no place: a member that comes back takes
// a new one.
type DeadLetter struct {
	hook.Delivery
	At     hook.Timestamp // when it was given up
	Reason string
	Class  hook.ErrorClass
}

func encodeDead(d *DeadLetter, version hook.Timestamp) []byte {
	e := appendState(newValue(96), version, &d.State).
		text(rowReason, d.Reason).uint(rowClass, uint64(d.Class)).
		message(rowSinkKey, encoder(nil).text(2, d.Key.SourceID).text(3, d.Key.Type))
	if d.Ordered {
		e = e.member(d.Lane, hook.Place{})
	}
	return e
}

func decodeDead(b []byte, d *DeadLetter) error {
	visit := deliveryField(&d.Delivery)
	return decode("dead letter", b, func(f field) error {
		switch f.num {
		case rowReason:
			d.Reason = string(f.b)
		case rowClass:
			d.Class = hook.ErrorClass(f.v)
		case rowSinkKey:
			return sinkField(f.b, &d.Key)
		default:
			return visit(f)
		}
		return nil
	})
}

// counter is cumulative and has one writer. A writer counts what it committed; the leader counts what it settled.
type counter struct {
	rows, bytes uint64
	dead        uint64 // leader: dead letters written, less those that left
	// leader: what writers committed that are gone; it counts as theirs.
	foldedRows, foldedBytes uint64
	turns                   uint64         // leader: settlements of any kind, so that each commit changes the counter
	position                hook.Timestamp // leader: no unsettled row is due before it
	// ordered: some of the rows were lane members. The leader's says it of what it folded.
	ordered bool
}

func (c *counter) encode() []byte {
	return newValue(32).uint(2, c.rows).uint(3, c.bytes).uint(4, c.dead).fixed(5, uint64(c.position)).uint(6, c.turns).
		uint(7, c.foldedRows).uint(8, c.foldedBytes).uint(9, bit(c.ordered))
}

func decodeCounter(b []byte) (c counter, err error) {
	if b == nil {
		return c, nil
	}
	err = decode("counter", b, func(f field) error {
		switch f.num {
		case 2:
			c.rows = f.v
		case 3:
			c.bytes = f.v
		case 4:
			c.dead = f.v
		case 5:
			c.position = hook.Timestamp(f.v)
		case 6:
			c.turns = f.v
		case 7:
			c.foldedRows = f.v
		case 8:
			c.foldedBytes = f.v
		case 9:
			c.ordered = f.flag()
		}
		return nil
	})
	return c, err
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
