package store

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// ErrBadCursor: a cursor was not made by this store.
var ErrBadCursor = errors.New("cursor is not one of this listing")

// maxDeadScan bounds the keys that one page examines.
const maxDeadScan = 10_000

// deadPage bounds the keys that are read at a time from one partition, and the dead letters that are read at once.
const deadPage = 256

// deadBodies bounds the bytes of hooks that are read at once: a hook's value holds the first part of its body.
const deadBodies = 8 << 20

// DeadFilter selects dead letters; zero fields select all.
type DeadFilter struct {
	Tenant   string
	SourceID string
	Sink     *uint16
	Class    hook.ErrorClass
	Since    hook.Timestamp
	Cursor   string
	// Limit of the page; zero asks for the total alone.
	Limit int
}

// DeadEntry is a dead letter with what a listing shows of its hook.
type DeadEntry struct {
	DeadLetter
	ReceivedAt  int64
	BodySize    int64
	ContentType string
}

// DeadLetters is a page, newest first. Next is empty on the last; a page may be short while it is set, since a page
// examines at most 10,000 keys. Total is -1 where it is not known.
type DeadLetters struct {
	Entries []DeadEntry
	Next    string
	Total   int64
}

// deadMark is a place in the listing: by time, then by the rest of the index key.
type deadMark []byte

// DeadLetters lists dead letters by the index by time: each partition is read backwards, and the pages are merged.
func (s *Store) DeadLetters(ctx context.Context, f DeadFilter) (out DeadLetters, err error) {
	mark, err := base64.RawURLEncoding.DecodeString(f.Cursor)
	if err != nil || len(mark) != 0 && len(mark) < 10 {
		return out, ErrBadCursor
	}
	if f.Limit > 0 {
		err = s.kv.View(ctx, func(r kv.Reader) error {
			l := deadListing{store: s, reader: r, filter: f, mark: mark}
			if err := l.run(ctx); err != nil {
				return err
			}
			out = l.out
			return nil
		})
		if err != nil {
			return out, fmt.Errorf("list dead letters: %w", err)
		}
		if f.Cursor == "" && out.Next == "" {
			out.Total = int64(len(out.Entries))
			return out, nil
		}
	}
	out.Total, err = s.deadTotal(ctx, f)
	return out, err
}

// deadTotal is known where no filter but the tenant stands, by the counters.
func (s *Store) deadTotal(ctx context.Context, f DeadFilter) (int64, error) {
	if f.selects() || f.Since != 0 {
		return -1, nil
	}
	total := int64(0)
	for p := range s.partitions {
		err := s.counters(ctx, uint8(p), func(k hook.SinkKey, writer []byte, c counter) {
			if len(writer) == 0 && (f.Tenant == "" || f.Tenant == k.Tenant) {
				total += int64(c.dead)
			}
		})
		if err != nil {
			return -1, fmt.Errorf("count dead letters: %w", err)
		}
	}
	return total, nil
}

type deadListing struct {
	store    *Store
	reader   kv.Reader
	filter   DeadFilter
	mark     deadMark
	examined int
	out      DeadLetters
}

// deadRef is one key of an index, brought into the form of the index by time: what sorts the listing.
type deadRef struct {
	partition uint8
	sort      []byte
	tenant    string
	at        hook.Timestamp
	ref       hook.Ref
}

func (l *deadListing) run(ctx context.Context) error {
	streams := make([]deadStream, l.store.partitions)
	for p := range streams {
		streams[p] = deadStream{listing: l, partition: uint8(p), more: true, to: l.upper(uint8(p))}
	}
	for {
		refs, more, err := merge(ctx, streams, l.ask())
		if err != nil {
			return err
		}
		read, err := l.take(ctx, refs)
		if err != nil {
			return err
		}
		if read == len(refs) && !more {
			return nil
		}
		if len(l.out.Entries) >= l.filter.Limit || l.examined >= maxDeadScan {
			l.out.Next = base64.RawURLEncoding.EncodeToString(l.mark)
			return nil
		}
	}
}

// ask is how many refs are worth reading next: where all match, those that are missing.
func (l *deadListing) ask() int {
	n := min(deadPage, maxDeadScan-l.examined)
	if l.filter.selects() {
		return n
	}
	return min(n, l.filter.Limit-len(l.out.Entries))
}

// merge takes at most n refs from the streams, newest first, and says whether there are more.
func merge(ctx context.Context, streams []deadStream, n int) (refs []deadRef, more bool, err error) {
	for {
		best := -1
		for p := range streams {
			head, err := streams[p].head(ctx)
			if err != nil {
				return nil, false, err
			}
			if head != nil && (best < 0 || bytes.Compare(head.sort, streams[best].refs[0].sort) > 0) {
				best = p
			}
		}
		if best < 0 || len(refs) == n {
			return refs, best >= 0, nil
		}
		refs = append(refs, streams[best].refs[0])
		streams[best].refs = streams[best].refs[1:]
	}
}

// upper is where a partition's index ends: below the mark, which other partitions compare by its sort alone.
func (l *deadListing) upper(partition uint8) []byte {
	family := l.family(partition)
	if len(l.mark) == 0 {
		return successor(family)
	}
	place, by := l.mark[:len(l.mark)-1], l.mark[len(l.mark)-1]
	if l.filter.Tenant != "" {
		k := readKey(place, 8)
		k.text()
		place = append(append([]byte{}, place[:8]...), k.rest...)
	}
	to := append(append([]byte{}, family...), place...)
	if partition < by {
		return append(to, 0)
	}
	return to
}

func (l *deadListing) family(partition uint8) key {
	if l.filter.Tenant != "" {
		return deadFamily(partition).text(l.filter.Tenant)
	}
	return partitionKey(partition, famDeadTime)
}

// deadStream is one partition's index, read backwards page by page.
type deadStream struct {
	listing   *deadListing
	partition uint8
	refs      []deadRef
	to        []byte
	more      bool
}

func (d *deadStream) head(ctx context.Context) (*deadRef, error) {
	for len(d.refs) == 0 && d.more {
		if err := d.page(ctx); err != nil {
			return nil, err
		}
	}
	if len(d.refs) == 0 {
		return nil, nil
	}
	return &d.refs[0], nil
}

func (d *deadStream) page(ctx context.Context) error {
	l := d.listing
	family := l.family(d.partition)
	from := binary.BigEndian.AppendUint64(append([]byte{}, family...), uint64(l.filter.Since))
	if bytes.Compare(from, d.to) >= 0 {
		d.more = false
		return nil
	}
	limit := deadPage
	if !l.filter.selects() {
		limit = min(deadPage, l.filter.Limit+1)
	}
	pairs, err := l.reader.Scan(ctx, kv.Scan{
		Range: kv.Range{From: from, To: d.to}, Limit: limit, Reverse: true, KeyOnly: true,
	})
	if err != nil {
		return err
	}
	d.more = len(pairs) == limit
	for _, p := range pairs {
		d.to = p.Key
		ref, err := l.read(d.partition, p.Key, len(family))
		if err != nil {
			return err
		}
		d.refs = append(d.refs, ref)
	}
	return nil
}

func (l *deadListing) read(partition uint8, k []byte, prefix int) (deadRef, error) {
	r := readKey(k, prefix)
	d := deadRef{partition: partition, tenant: l.filter.Tenant, at: r.ts()}
	if d.tenant == "" {
		d.tenant = r.text()
	}
	d.ref = hook.Ref{Hook: r.id(), Sink: r.u16()}
	d.sort = key(nil).ts(d.at).text(d.tenant).id(d.ref.Hook).u16(d.ref.Sink)
	return d, r.end()
}

// take reads the dead letters of refs at once and keeps those that match, up to the limit. It returns how many refs it
// has come by.
func (l *deadListing) take(ctx context.Context, refs []deadRef) (read int, err error) {
	keys := make([][]byte, len(refs))
	for i := range refs {
		keys[i] = deadKey(refs[i].partition, refs[i].tenant, refs[i].at, refs[i].ref)
	}
	values, err := l.reader.BatchGet(ctx, keys)
	if err != nil {
		return 0, err
	}
	first := len(l.out.Entries)
	for ; read < len(refs) && len(l.out.Entries) < l.filter.Limit; read++ {
		ref := &refs[read]
		l.mark = append(append(deadMark{}, ref.sort...), ref.partition)
		l.examined++
		if err := l.keep(ref, values[read]); err != nil {
			return read, err
		}
	}
	return read, l.describe(ctx, l.out.Entries[first:])
}

// keep adds a dead letter that matches; one that is gone has no value.
func (l *deadListing) keep(ref *deadRef, value []byte) error {
	if value == nil {
		return nil
	}
	e := DeadEntry{DeadLetter: DeadLetter{At: ref.at}}
	e.Partition, e.Hook = ref.partition, ref.ref.Hook
	e.Key = hook.SinkKey{Tenant: ref.tenant, Index: ref.ref.Sink}
	if err := decodeDead(value, &e.DeadLetter); err != nil {
		return err
	}
	if l.filter.match(&e) {
		l.out.Entries = append(l.out.Entries, e)
	}
	return nil
}

// describe fills in what the hooks say, as many at once as deadBodies lets.
func (l *deadListing) describe(ctx context.Context, entries []DeadEntry) error {
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+int(entries[n].Size) <= deadBodies) {
			size += int(entries[n].Size)
			n++
		}
		if err := l.hooks(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

func (l *deadListing) hooks(ctx context.Context, entries []DeadEntry) error {
	keys := make([][]byte, len(entries))
	for i := range entries {
		keys[i] = hookKey(entries[i].Partition, entries[i].Key.Tenant, entries[i].Hook)
	}
	values, err := l.reader.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		e := &entries[i]
		h, err := decodeHook(e.Key.Tenant, e.Hook, v)
		if err != nil {
			return err
		}
		e.ReceivedAt, e.BodySize = h.ReceivedAt, int64(h.bodySize(&e.State))
		e.ContentType, _ = h.Header("content-type")
	}
	return nil
}

// bodySize needs no further chunk: the row knows the size of the whole hook.
func (h *storedHook) bodySize(s *hook.State) int {
	return int(s.Size) - (h.StoredSize() - len(h.Body))
}

// selects is false where the index finds exactly what is asked for.
func (f *DeadFilter) selects() bool {
	return f.SourceID != "" || f.Sink != nil || f.Class != hook.NoError
}

func (f *DeadFilter) match(e *DeadEntry) bool {
	return (f.SourceID == "" || f.SourceID == e.Key.SourceID) &&
		(f.Sink == nil || *f.Sink == e.Key.Index) &&
		(f.Class == hook.NoError || f.Class == e.Class)
}
