package notify

import (
	"sync/atomic"
	"time"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// Bounds of what is remembered.
const (
	// maxNamed rows are named one by one, whether sent or not; beyond it a sink's rows are a backlog.
	maxNamed = 65_536
	// maxBacklogs sinks with rows that are not named are remembered; beyond it nothing more may be committed.
	maxBacklogs = 65_536
	// maxSent messages wait for their acknowledgement at once.
	maxSent = 64
)

// sinkPart is one sink's rows in one partition.
type sinkPart struct {
	partition uint8
	key       hook.SinkKey
	ordered   bool
}

// ledger is what the leader has not acknowledged: messages that were sent, rows that wait to be named, sinks whose rows
// are too many to be named, and sinks that may have rows. It is guarded by its owner.
type ledger struct {
	sequence uint64
	sent     []message
	named    int // rows in sent and waiting

	waiting   []named
	backlogs  map[sinkPart]hook.Timestamp
	behind    time.Time // when the first of backlogs came
	doubts    map[sinkPart]time.Time
	nextDoubt time.Time // no doubt is due before it

	full atomic.Bool
}

// named is the rows of one commit for one sink, and when they came.
type named struct {
	group hook.Group
	at    time.Time
}

// message is one that was sent. at is when the oldest of its contents came.
type message struct {
	sequence uint64
	rows     int
	at       time.Time
	request  *dispatchv1.NotifyRequest
}

func newLedger() ledger {
	return ledger{backlogs: map[sinkPart]hook.Timestamp{}, doubts: map[sinkPart]time.Time{}}
}

// add takes in what a commit wrote.
func (l *ledger) add(groups []hook.Group, now time.Time) {
	for _, g := range groups {
		if l.named+len(g.Hooks) > maxNamed {
			l.backlog(sinkPart{g.Partition, g.Key, g.Ordered}, g.Start, now)
			continue
		}
		l.named += len(g.Hooks)
		l.waiting = append(l.waiting, named{g, now})
	}
}

func (l *ledger) backlog(s sinkPart, from hook.Timestamp, now time.Time) {
	if len(l.backlogs) == 0 {
		l.behind = now
	}
	if old, ok := l.backlogs[s]; !ok || from < old {
		l.backlogs[s] = from
	}
	l.measure()
}

// doubt notes sinks that may have rows once due has come.
func (l *ledger) doubt(partition uint8, bindings []store.Binding, due time.Time) {
	for _, b := range bindings {
		l.doubts[sinkPart{partition, b.Key, b.Ordered}] = due
	}
	if l.nextDoubt.IsZero() {
		l.nextDoubt = due
	}
	l.measure()
}

func (l *ledger) measure() { l.full.Store(len(l.backlogs)+len(l.doubts) >= maxBacklogs) }

// ripen turns the doubts that are due into backlogs from the very beginning, since nobody knows the rows' time.
func (l *ledger) ripen(now time.Time) {
	if l.nextDoubt.IsZero() || now.Before(l.nextDoubt) {
		return
	}
	l.nextDoubt = time.Time{}
	for s, due := range l.doubts {
		if !due.After(now) {
			delete(l.doubts, s)
			l.backlog(s, 0, now)
		} else if l.nextDoubt.IsZero() || due.Before(l.nextDoubt) {
			l.nextDoubt = due
		}
	}
}

// next is the message to send now, or how long to wait for one; 0 until something comes.
func (l *ledger) next(now time.Time) (*dispatchv1.NotifyRequest, time.Duration) {
	l.ripen(now)
	if len(l.sent) >= maxSent || len(l.waiting)+len(l.backlogs) == 0 {
		if l.nextDoubt.IsZero() {
			return nil, 0
		}
		return nil, max(l.nextDoubt.Sub(now), time.Millisecond)
	}
	l.sequence++
	m := message{sequence: l.sequence, at: now}
	c := wire.Committed{Sequence: l.sequence}
	c.Groups = l.takeGroups(&m)
	c.Backlogs = l.takeBacklogs(&m)
	l.measure()
	m.request = &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c.Proto()}}
	l.sent = append(l.sent, m)
	return m.request, 0
}

func (l *ledger) takeGroups(m *message) (groups []hook.Group) {
	for len(l.waiting) > 0 && m.rows < wire.MaxNamed {
		first := &l.waiting[0]
		group := cut(&first.group, wire.MaxNamed-m.rows)
		m.rows += len(group.Hooks)
		m.at = earlier(m.at, first.at)
		groups = append(groups, group)
		if len(first.group.Hooks) > 0 {
			break // the rest goes with the next message
		}
		*first = named{}
		l.waiting = l.waiting[1:]
	}
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return groups
}

// cut takes the first n rows out of a group, or all where there are no more.
func cut(g *hook.Group, n int) hook.Group {
	head := *g
	if n >= len(g.Hooks) {
		g.Hooks, g.Lanes, g.Members = nil, nil, nil
		return head
	}
	head.Hooks, g.Hooks = g.Hooks[:n], g.Hooks[n:]
	if g.Ordered {
		head.Lanes, g.Lanes = g.Lanes[:n], g.Lanes[n:]
		head.Members, g.Members = g.Members[:n], g.Members[n:]
	}
	return head
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (l *ledger) takeBacklogs(m *message) (list []wire.Backlog) {
	if len(l.backlogs) > 0 {
		m.at = earlier(m.at, l.behind)
	}
	for s, from := range l.backlogs {
		if len(list) == wire.MaxBacklogs {
			break
		}
		delete(l.backlogs, s)
		list = append(list, wire.Backlog{Partition: s.partition, Key: s.key, From: from, Ordered: s.ordered})
	}
	return list
}

// acknowledge forgets the messages up to a sequence number.
func (l *ledger) acknowledge(sequence uint64) {
	n := 0
	for n < len(l.sent) && l.sent[n].sequence <= sequence {
		l.named -= l.sent[n].rows
		n++
	}
	if l.sent = l.sent[n:]; len(l.sent) == 0 {
		l.sent = nil
	}
}

func (l *ledger) unacknowledged() []*dispatchv1.NotifyRequest {
	list := make([]*dispatchv1.NotifyRequest, len(l.sent))
	for i := range l.sent {
		list[i] = l.sent[i].request
	}
	return list
}

// empty says whether everything is acknowledged, doubts aside.
func (l *ledger) empty() bool { return len(l.sent)+len(l.waiting)+len(l.backlogs) == 0 }

// oldest is since when the longest unacknowledged has been so, doubts aside.
func (l *ledger) oldest(now time.Time) (at time.Time, owed bool) {
	at = now
	if len(l.sent) > 0 {
		at = earlier(at, l.sent[0].at)
	}
	if len(l.waiting) > 0 {
		at = earlier(at, l.waiting[0].at)
	}
	if len(l.backlogs) > 0 {
		at = earlier(at, l.behind)
	}
	return at, !l.empty()
}
