package wire

import (
	"slices"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

// Backlog says that a sink has rows that are not named one by one, the earliest due at From.
type Backlog struct {
	Partition uint8
	Key       hook.SinkKey
	From      hook.Timestamp
	Ordered   bool
}

// Committed names what a writer committed.
type Committed struct {
	// Sequence number, from 1, without a gap within a writer's life.
	Sequence uint64
	Groups   []hook.Group
	Backlogs []Backlog
}

// Proto is the message for a committed.
func (c *Committed) Proto() *dispatchv1.Committed {
	p := &dispatchv1.Committed{Sequence: c.Sequence, Groups: make([]*dispatchv1.RowGroup, len(c.Groups))}
	for i := range c.Groups {
		p.Groups[i] = groupProto(&c.Groups[i])
	}
	for i := range c.Backlogs {
		b := &c.Backlogs[i]
		p.Backlogs = append(p.Backlogs, &dispatchv1.Backlog{
			Partition: uint32(b.Partition), Key: KeyProto(b.Key), From: uint64(b.From), Ordered: b.Ordered,
		})
	}
	return p
}

func groupProto(g *hook.Group) *dispatchv1.RowGroup {
	p := &dispatchv1.RowGroup{
		Partition: uint32(g.Partition), Key: KeyProto(g.Key), Start: uint64(g.Start),
		HookIds: make([][]byte, len(g.Hooks)),
	}
	for i := range g.Hooks {
		p.HookIds[i] = g.Hooks[i][:]
	}
	if !g.Ordered {
		return p
	}
	p.MemberIndexes, p.Lanes = g.Members, make([][]byte, len(g.Lanes))
	for i, lane := range g.Lanes {
		p.Lanes[i] = []byte(lane)
	}
	return p
}

// MaxWriters bounds the writers of one stream.
const MaxWriters = 256

// WriterHelloProto opens the stream of the writers of one process, at least one.
func WriterHelloProto(writers []hook.RunID) *dispatchv1.WriterHello {
	p := &dispatchv1.WriterHello{WriterId: writers[0][:]}
	for _, w := range writers[1:] {
		p.MoreWriterIds = append(p.MoreWriterIds, w[:])
	}
	return p
}

// ReadWriterHello reads the names of the writers. Two of the same name are refused.
func ReadWriterHello(p *dispatchv1.WriterHello) ([]hook.RunID, error) {
	first, err := readRunID("writer_id", p.GetWriterId())
	if err != nil {
		return nil, err
	}
	if len(p.GetMoreWriterIds()) >= MaxWriters {
		return nil, malformed("more_writer_ids")
	}
	writers := []hook.RunID{first}
	for _, b := range p.GetMoreWriterIds() {
		id, err := readRunID("more_writer_ids", b)
		if err != nil {
			return nil, err
		}
		if slices.Contains(writers, id) {
			return nil, malformed("more_writer_ids")
		}
		writers = append(writers, id)
	}
	return writers, nil
}

// Bounds of one Committed: rows that it names, and backlogs.
const (
	MaxNamed    = 4_096
	MaxBacklogs = 1_024
)

// ReadCommitted reads what a writer committed. An empty group is refused, and what is over the bounds.
func ReadCommitted(p *dispatchv1.Committed) (Committed, error) {
	switch {
	case p.GetSequence() == 0:
		return Committed{}, malformed("sequence")
	case len(p.GetGroups()) > MaxNamed:
		return Committed{}, malformed("groups")
	case len(p.GetBacklogs()) > MaxBacklogs:
		return Committed{}, malformed("backlogs")
	}
	c := Committed{Sequence: p.GetSequence(), Groups: make([]hook.Group, len(p.GetGroups()))}
	rows := 0
	for i, pg := range p.GetGroups() {
		if rows += len(pg.GetHookIds()); rows > MaxNamed {
			return Committed{}, at("groups", i, malformed("hook_ids"))
		}
		if err := readGroup(pg, &c.Groups[i]); err != nil {
			return Committed{}, at("groups", i, err)
		}
	}
	for i, pb := range p.GetBacklogs() {
		b, err := readBacklog(pb)
		if err != nil {
			return Committed{}, at("backlogs", i, err)
		}
		c.Backlogs = append(c.Backlogs, b)
	}
	return c, nil
}

func readGroup(p *dispatchv1.RowGroup, g *hook.Group) (err error) {
	if g.Partition, err = readPartition(p.GetPartition()); err != nil {
		return err
	}
	if g.Key, err = ReadKey(p.GetKey()); err != nil {
		return err
	}
	if len(p.GetHookIds()) == 0 {
		return malformed("hook_ids")
	}
	g.Hooks = make([]hook.ID, len(p.GetHookIds()))
	for i, b := range p.GetHookIds() {
		if g.Hooks[i], err = readID(b); err != nil {
			return err
		}
	}
	g.Start = hook.Timestamp(p.GetStart())
	return readLanes(p, g)
}

func readLanes(p *dispatchv1.RowGroup, g *hook.Group) error {
	if len(p.GetLanes()) == 0 && len(p.GetMemberIndexes()) == 0 {
		return nil
	}
	if len(p.GetLanes()) != len(g.Hooks) || len(p.GetMemberIndexes()) != len(g.Hooks) {
		return malformed("lanes")
	}
	g.Ordered, g.Members, g.Lanes = true, p.GetMemberIndexes(), make([]string, len(g.Hooks))
	for i, lane := range p.GetLanes() {
		if len(lane) > maxLane {
			return malformed("lanes")
		}
		g.Lanes[i] = string(lane)
	}
	return nil
}

func readBacklog(p *dispatchv1.Backlog) (Backlog, error) {
	partition, err := readPartition(p.GetPartition())
	if err != nil {
		return Backlog{}, err
	}
	key, err := ReadKey(p.GetKey())
	if err != nil {
		return Backlog{}, err
	}
	return Backlog{Partition: partition, Key: key, From: hook.Timestamp(p.GetFrom()), Ordered: p.GetOrdered()}, nil
}
