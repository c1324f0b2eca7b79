// Package wire turns the messages of the dispatch protocol into the types of the domain and back. What a remote party
// sent is checked here, field by field, and nowhere else: a value that a Read function returned without error is within
// all documented bounds. The Read functions never panic and share memory with the message that they read.
package wire

import (
	"errors"
	"fmt"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

// ErrMalformed is the kind of every error of this package's Read functions. Their texts name fields, never values.
var ErrMalformed = errors.New("malformed message")

// Bounds of what a remote party may send.
const (
	maxPartition = 252
	maxIndex     = 63
	maxType      = 32
	maxLane      = 256
)

func malformed(field string) error { return fmt.Errorf("%w: %s", ErrMalformed, field) }

// at names the element of a list that an error belongs to.
func at(list string, i int, err error) error { return fmt.Errorf("%s[%d]: %w", list, i, err) }

// RowProto is the message for a row. It shares memory with the row.
func RowProto(r *hook.Row) *dispatchv1.Row {
	var s rowSlab
	return s.set(r)
}

// rowSlab is the memory of one row's message.
type rowSlab struct {
	row dispatchv1.Row
	key dispatchv1.SinkKey
}

func (s *rowSlab) set(r *hook.Row) *dispatchv1.Row {
	setKey(&s.key, r.Key)
	s.row.Partition, s.row.Key, s.row.HookId = uint32(r.Partition), &s.key, r.Hook[:]
	s.row.Due, s.row.Version = uint64(r.Due), uint64(r.Version)
	if r.Ordered {
		s.row.Ordered, s.row.Lane = true, []byte(r.Lane)
		s.row.MemberStart, s.row.MemberIndex = uint64(r.Place.Start), r.Place.Index
	}
	return &s.row
}

// KeyProto is the message for a sink key.
func KeyProto(k hook.SinkKey) *dispatchv1.SinkKey {
	p := new(dispatchv1.SinkKey)
	setKey(p, k)
	return p
}

func setKey(p *dispatchv1.SinkKey, k hook.SinkKey) {
	p.Tenant, p.SourceId, p.Index, p.Type = k.Tenant, k.SourceID, uint32(k.Index), k.Type
}

// ReadRow reads a row. An unordered row with a lane or a place is refused, and so is a lane member without a place or a
// version: a wake-up, which is the leader's alone.
func ReadRow(p *dispatchv1.Row) (hook.Row, error) {
	partition, err := readPartition(p.GetPartition())
	if err != nil {
		return hook.Row{}, err
	}
	key, err := ReadKey(p.GetKey())
	if err != nil {
		return hook.Row{}, err
	}
	id, err := readID(p.GetHookId())
	if err != nil {
		return hook.Row{}, err
	}
	r := hook.Row{
		Partition: partition, Key: key, Hook: id,
		Due: hook.Timestamp(p.GetDue()), Version: hook.Timestamp(p.GetVersion()),
		Ordered: p.GetOrdered(), Lane: string(p.GetLane()),
		Place: hook.Place{Start: hook.Timestamp(p.GetMemberStart()), Index: p.GetMemberIndex()},
	}
	switch {
	case len(r.Lane) > maxLane || !r.Ordered && (r.Lane != "" || r.Place != hook.Place{}):
		return hook.Row{}, malformed("lane")
	case r.Ordered && (r.Version == 0 || r.Place.Start == 0):
		return hook.Row{}, malformed("version or member_start")
	}
	return r, nil
}

func readPartition(p uint32) (uint8, error) {
	if p > maxPartition {
		return 0, malformed("partition")
	}
	return uint8(p), nil
}

func readID(b []byte) (id hook.ID, err error) {
	if len(b) != len(id) {
		return id, malformed("hook_id")
	}
	return hook.ID(b), nil
}

// ReadKey reads a sink key. A source of another tenant than the hook's, unless it is shared, is refused.
func ReadKey(p *dispatchv1.SinkKey) (hook.SinkKey, error) {
	k := hook.SinkKey{Tenant: p.GetTenant(), SourceID: p.GetSourceId(), Index: uint16(p.GetIndex()), Type: p.GetType()}
	owner, _, named := source.SplitID(k.SourceID)
	switch {
	case !source.ValidName(k.Tenant):
		return hook.SinkKey{}, malformed("tenant")
	case !named, owner != hook.DefaultTenant && owner != k.Tenant:
		return hook.SinkKey{}, malformed("source_id")
	case p.GetIndex() > maxIndex:
		return hook.SinkKey{}, malformed("index")
	case !isType(k.Type):
		return hook.SinkKey{}, malformed("type")
	}
	return k, nil
}

func isType(s string) bool {
	if s == "" || len(s) > maxType {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && c != '_' {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
