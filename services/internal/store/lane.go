package store

import (
	"bytes"
	"context"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

const (
	// lanePage bounds the members that one scan reads.
	lanePage = 256
	// maxLaneScans bounds the scans of one page of lanes.
	maxLaneScans = 16
	// maxLaneMembers bounds the members of one lane that are read at once.
	maxLaneMembers = 1024
)

// LaneScan asks for lanes of one sink in the order of their texts, from a lane on; the empty text is the first.
type LaneScan struct {
	Partition uint8
	Key       hook.SinkKey
	From      string // inclusive
	Lanes     int    // most lanes, at least 1
	Members   int    // most rows of a lane, 1 to 1024
}

// LanePage is a page of lanes as of a snapshot. More: the snapshot has lanes behind the page, and the following one begins
// at Next.
type LanePage struct {
	Lanes []hook.LaneRows
	Next  string
	More  bool
}

// ScanLanes reads a page of one sink's lanes, each from its head. It makes a bounded number of scans of bounded length, so
// that a page may hold fewer lanes than were asked for while More is set, but always one. A long lane costs no more than
// what is read of it and a page of rows.
func (s *Store) ScanLanes(ctx context.Context, q LaneScan) (LanePage, error) {
	q.Lanes, q.Members = max(q.Lanes, 1), min(max(q.Members, 1), maxLaneMembers)
	var page LanePage
	err := s.kv.View(ctx, func(r kv.Reader) (err error) {
		l := laneScan{query: q, reader: r, family: laneFamily(q.Partition, q.Key)}
		page, err = l.run(ctx)
		return err
	})
	if err != nil {
		return LanePage{}, fmt.Errorf("scan lanes of %s: %w", q.Key, err)
	}
	return page, nil
}

// laneScan is one page of lanes in the making. The last lane of the page is the one that is read.
type laneScan struct {
	query  LaneScan
	reader kv.Reader
	family key
	page   LanePage
	prefix []byte // of the keys of the last lane
	within kv.Range
}

func (l *laneScan) run(ctx context.Context) (LanePage, error) {
	l.within = l.family.all()
	l.within.From = bytes.Clone(l.family.text(l.query.From))
	for range maxLaneScans {
		done, err := l.scan(ctx)
		if done || err != nil {
			return l.page, err
		}
	}
	return l.page, l.stop(ctx)
}

// scan reads on, and is done when the page is full or the lanes have ended.
func (l *laneScan) scan(ctx context.Context) (done bool, err error) {
	wanted := (l.query.Lanes - len(l.page.Lanes) + 1) * (l.query.Members + 1)
	limit := min(wanted, lanePage)
	pairs, err := l.reader.Scan(ctx, kv.Scan{Range: l.within, Limit: limit})
	if err != nil {
		return false, err
	}
	for _, p := range pairs {
		if full, err := l.take(p); full || err != nil {
			return true, err
		}
	}
	if len(pairs) < limit {
		return true, nil
	}
	if l.within.From = after(pairs[limit-1].Key); l.last().More {
		l.within.From = successor(l.prefix)
	}
	return false, nil
}

func (l *laneScan) last() *hook.LaneRows { return &l.page.Lanes[len(l.page.Lanes)-1] }

// take adds a member to its lane, unless there are enough of it. It is full at the first member of a lane too many.
func (l *laneScan) take(p kv.Pair) (full bool, err error) {
	if l.prefix == nil || !bytes.HasPrefix(p.Key, l.prefix) {
		if len(l.page.Lanes) == l.query.Lanes {
			l.end()
			return true, nil
		}
		if err := l.open(p.Key); err != nil {
			return false, err
		}
	}
	lane := l.last()
	if len(lane.Rows) == l.query.Members {
		lane.More = true
		return false, nil
	}
	row := hook.Row{Partition: l.query.Partition, Key: l.query.Key, Ordered: true, Lane: lane.Lane}
	d, err := readMember(row, len(l.prefix), p)
	lane.Rows = append(lane.Rows, d)
	return false, err
}

func (l *laneScan) open(k []byte) error {
	r := readKey(k, len(l.family))
	lane := r.text()
	if r.err != nil {
		return fmt.Errorf("key %x: %w", k, r.err)
	}
	l.page.Lanes = append(l.page.Lanes, hook.LaneRows{Lane: lane})
	l.prefix = k[:len(k)-len(r.rest)]
	return nil
}

// end closes the page behind its last lane.
func (l *laneScan) end() { l.page.More, l.page.Next = true, l.last().Lane+"\x00" }

// stop closes a page whose scans are used up, and finds out whether its last lane goes on.
func (l *laneScan) stop(ctx context.Context) (err error) {
	lane := l.last()
	l.end()
	if lane.More {
		return nil
	}
	rest := kv.Range{From: l.within.From, To: successor(l.prefix)}
	pairs, err := l.reader.Scan(ctx, kv.Scan{Range: rest, Limit: 1, KeyOnly: true})
	lane.More = len(pairs) > 0
	return err
}

// readMember reads a member whose lane the row names; prefix is the length of the lane's keys up to the place.
func readMember(row hook.Row, prefix int, p kv.Pair) (hook.Delivery, error) {
	k := readKey(p.Key, prefix)
	d := hook.Delivery{Row: row}
	d.Place = k.place()
	if err := k.end(); err != nil {
		return d, fmt.Errorf("key %x: %w", p.Key, err)
	}
	return d, decodeRow(p.Value, &d)
}

// ReadLanes reads at most limit members, 1 to 1024, of each of the lanes in one snapshot, one result for each. Each takes a
// scan, one after the other: a caller bounds how many it asks for at once.
func (s *Store) ReadLanes(ctx context.Context, lanes []hook.LaneFrom, limit int) ([]hook.LaneRows, error) {
	out := make([]hook.LaneRows, len(lanes))
	err := s.kv.View(ctx, func(r kv.Reader) (err error) {
		for i := range lanes {
			if out[i], err = readLane(ctx, r, &lanes[i], min(max(limit, 1), maxLaneMembers)); err != nil {
				return fmt.Errorf("of %s: %w", lanes[i].Key, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d lanes: %w", len(lanes), err)
	}
	return out, nil
}

func readLane(ctx context.Context, r kv.Reader, q *hook.LaneFrom, limit int) (out hook.LaneRows, err error) {
	lane := laneFamily(q.Partition, q.Key).text(q.Lane)
	within := kv.Range{From: key(bytes.Clone(lane)).place(q.From), To: successor(lane)}
	pairs, err := r.Scan(ctx, kv.Scan{Range: within, Limit: limit + 1})
	if err != nil {
		return out, err
	}
	out = hook.LaneRows{Lane: q.Lane, More: len(pairs) > limit, Rows: make([]hook.Delivery, min(len(pairs), limit))}
	row := hook.Row{Partition: q.Partition, Key: q.Key, Ordered: true, Lane: q.Lane}
	for i := range out.Rows {
		if out.Rows[i], err = readMember(row, len(lane), pairs[i]); err != nil {
			return out, err
		}
	}
	return out, nil
}
