// Package local is the key-value port on one machine: an embedded engine with snapshot isolation on top.
//
// One lock orders starts and commits. Under it a commit is checked against what was committed since its start, takes
// its timestamp and is applied to the engine; it waits for the disk outside, so that all commits that wait share a
// sync. What is applied is visible to updates at once, and one that has seen it waits for the same sync before it
// returns. A view waits for nobody: it reads the newest state that is durable.
//
// The process ends, by a fatal log entry, when the log cannot be written: what is on the disk then decides. The guard
// for low space refuses writes before that.
package local

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// markAhead is how far the persisted mark stands above the clock: the most that a store waits for the wall after a crash.
// While the clock leads, because the wall was set back, the mark stands closer above it, by markLeast at the least: what
// crashes add to the lead must not add up.
const markAhead, markLeast = 500 * time.Millisecond, 50 * time.Millisecond

// The engine's key space: the caller's keys behind one prefix, the store's own behind another.
const (
	dataPrefix byte = 'd'
	dataEnd         = dataPrefix + 1
)

var markKey = []byte("m/clock")

// Store is the embedded store. It implements kv.Store.
type Store struct {
	opts  Options
	log   *zap.Logger
	db    *pebble.DB
	guard *guard
	idle  *pending // done from the start

	// hold is called, in tests, by a commit after its closure.
	hold func()

	life   sync.RWMutex // read by every use of the engine, written by Close
	closed bool

	mu      sync.Mutex
	clock   *clock
	mark    kv.Timestamp // persisted, or on its way there
	marked  *pending     // carries mark
	newest  *pending     // last applied
	written *pending     // the last of them that carries a caller's writes
	durable *state       // what views read
	states  map[*state]struct{}
	recent  *conflicts
	updates *readerList

	memories sync.Pool // of *memory

	durableMark atomic.Uint64
	failed      atomic.Bool
	queue       *syncQueue
	synced      chan struct{} // closed when syncLoop has ended
}

var _ kv.Store = (*Store)(nil)

func appendKey(dst, key []byte) []byte { return append(append(dst, dataPrefix), key...) }

// upperBound is where a range ends that ends at to; empty stands for the end of the caller's keys.
func upperBound(to []byte) []byte {
	if len(to) == 0 {
		return []byte{dataEnd}
	}
	return appendKey(nil, to)
}

func encodeMark(ts kv.Timestamp) []byte { return binary.BigEndian.AppendUint64(nil, uint64(ts)) }

// enter begins a use of the engine, which leave ends. It fails once the store is closed.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return fmt.Errorf("store is closed: %w", kv.ErrUnavailable)
	}
	return nil
}

func (s *Store) leave() { s.life.RUnlock() }

// begin opens an update's snapshot.
func (s *Store) begin(ctx context.Context, r *reader) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	start, err := s.stamp()
	if err != nil {
		return err
	}
	r.s, r.start, r.seen, r.snap = s, start, s.newest, s.db.NewSnapshot()
	s.updates.add(r)
	return nil
}

// end frees an update's snapshot. After Close nothing is left to free.
func (s *Store) end(t *txn) {
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return
	}
	s.mu.Lock()
	s.retire(t)
	s.mu.Unlock()
	_ = t.snap.Close() // fails only on a snapshot that is closed
}

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	var r reader
	v, err := s.beginView(ctx, &r)
	if err != nil {
		return err
	}
	defer s.release(v)
	err = fn(&r)
	return cmp.Or(s.seenDurable(ctx, &r), err)
}

// seenDurable returns when all that r could see is durable. A store closed meanwhile promises nothing.
func (s *Store) seenDurable(ctx context.Context, r *reader) error {
	if err := r.seen.wait(ctx); err != nil {
		return fmt.Errorf("wait for what was seen: %w", err)
	}
	s.life.RLock()
	defer s.life.RUnlock()
	if s.closed {
		return fmt.Errorf("store was closed: %w", kv.ErrUnavailable)
	}
	return nil
}

// Update implements kv.Store.
func (s *Store) Update(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (kv.Timestamp, error) {
	t := txn{memory: s.remember()}
	defer s.forget(t.memory)
	if err := s.begin(ctx, &t.reader); err != nil {
		return 0, err
	}
	defer s.end(&t)
	if err := fn(&t); err != nil || len(t.ops) == 0 {
		return t.start, cmp.Or(s.seenDurable(ctx, &t.reader), err)
	}
	if s.hold != nil {
		s.hold()
	}
	ts, p, err := s.tryCommit(ctx, &t, o)
	if err != nil {
		return 0, err
	}
	if err := p.wait(ctx); err != nil {
		return 0, fmt.Errorf("commit at %d not yet durable: %w (%v)", ts, kv.ErrUndetermined, err)
	}
	return ts, nil
}

func (s *Store) tryCommit(ctx context.Context, t *txn, o kv.UpdateOptions) (kv.Timestamp, *pending, error) {
	if err := s.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer s.leave()
	if err := s.guard.admit(t.size); err != nil {
		return 0, nil, err
	}
	return s.commit(t, o)
}

// Now implements kv.Store.
func (s *Store) Now(ctx context.Context) (kv.Timestamp, error) {
	ts, p, err := s.now(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.wait(ctx); err != nil {
		return 0, fmt.Errorf("persist the clock: %w", err)
	}
	return ts, nil
}

func (s *Store) now(ctx context.Context) (kv.Timestamp, *pending, error) {
	if err := s.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	ts, err := s.stamp()
	return ts, s.cover(ts), err
}

// DropRange implements kv.Store. It is not refused for low space, being what makes some.
func (s *Store) DropRange(ctx context.Context, r kv.Range) error {
	p, err := s.dropRange(ctx, r)
	if err != nil {
		return err
	}
	if err := p.wait(ctx); err != nil {
		return fmt.Errorf("drop range: %w", err)
	}
	return nil
}

func (s *Store) dropRange(ctx context.Context, r kv.Range) (*pending, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	if len(r.To) > 0 && string(r.From) >= string(r.To) {
		return s.idle, nil
	}
	batch := s.db.NewBatch()
	if err := batch.DeleteRange(appendKey(nil, r.From), upperBound(r.To), nil); err != nil {
		return nil, fmt.Errorf("drop range: %w (%w)", kv.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed.Load() {
		return nil, fmt.Errorf("drop range: %w", kv.ErrUnavailable)
	}
	return s.apply(batch, 0)
}

// Close implements kv.Store. It waits for commits on their way to the disk, not for closures.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.queue.close()
	<-s.synced
	for r := s.updates.oldest(); r != nil; r = s.updates.oldest() {
		s.updates.remove(r)
		_ = r.snap.Close() // fails only on a snapshot that is closed
	}
	s.closeStates()
	var err error
	if !s.failed.Load() {
		// The mark falls back to the clock, so that an orderly restart costs no lead.
		err = s.db.Set(markKey, encodeMark(s.clock.next()), pebble.Sync)
	}
	if err = errors.Join(err, s.db.Close()); err != nil {
		return fmt.Errorf("close store in %s: %w", s.opts.Dir, err)
	}
	return nil
}
