package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// pending is a batch that is applied, and visible, and on its way to the disk. The log is written in order: when one
// is done, all before it are.
type pending struct {
	batch *pebble.Batch
	mark  kv.Timestamp // of the clock, if the batch carries one
	state *state       // with the batch in it; nil for the mark's, which changes nothing that views read
	done  chan struct{}
	err   error // valid once done
}

func settled() *pending {
	p := &pending{done: make(chan struct{})}
	close(p.done)
	return p
}

// over says whether the batch is durable or never will be.
func (p *pending) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait returns when the batch is durable, with ErrUnavailable if it can never be, or when ctx ends, with its error.
func (p *pending) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// syncQueue hands applied batches to the goroutine that waits for the disk.
type syncQueue struct {
	mu     sync.Mutex
	more   sync.Cond
	items  []*pending
	closed bool
}

func newSyncQueue() *syncQueue {
	q := &syncQueue{}
	q.more.L = &q.mu
	return q
}

func (q *syncQueue) push(p *pending) {
	q.mu.Lock()
	q.items = append(q.items, p)
	q.mu.Unlock()
	q.more.Signal()
}

func (q *syncQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Signal()
}

// take returns everything queued, in order, and keeps spent for later; nothing once the queue is closed and empty.
func (q *syncQueue) take(spent []*pending) []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.more.Wait()
	}
	items := q.items
	q.items = spent[:0]
	return items
}

// syncLoop settles pending batches until the queue is closed.
func (s *Store) syncLoop() {
	defer close(s.synced)
	var items []*pending
	for {
		items = s.queue.take(items)
		if len(items) == 0 {
			return
		}
		for i, p := range items {
			s.settle(p)
			items[i] = nil
		}
	}
}

func (s *Store) settle(p *pending) {
	err := p.batch.SyncWait()
	if err != nil {
		p.err = fmt.Errorf("sync the log: %w (%w)", kv.ErrUnavailable, err)
		s.failed.Store(true)
	}
	// Closing a batch whose sync failed would hand it to others through the engine's pool.
	if err == nil {
		_ = p.batch.Close()
		if p.state != nil {
			s.advance(p.state)
		}
		s.durableMark.Store(max(s.durableMark.Load(), uint64(p.mark)))
	}
	p.batch, p.state = nil, nil
	close(p.done)
	if err != nil {
		s.log.Fatal("write-ahead log failed", zap.String("dir", s.opts.Dir), zap.Error(err))
	}
}

// apply makes the batch visible and queues its sync. s.mu is held.
func (s *Store) apply(batch *pebble.Batch, mark kv.Timestamp) (*pending, error) {
	if err := s.db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		return nil, fmt.Errorf("apply: %w (%w)", kv.ErrUnavailable, err)
	}
	p := &pending{batch: batch, mark: mark, done: make(chan struct{})}
	s.newest = p
	if mark == 0 {
		s.written, p.state = p, s.freeze()
	}
	s.queue.push(p)
	return p, nil
}

// stamp makes a timestamp, and sees to it that the persisted mark stays above. s.mu is held. A caller that hands the
// timestamp out waits for s.newest as it is after the call, or for cover.
func (s *Store) stamp() (kv.Timestamp, error) {
	if s.failed.Load() {
		return 0, fmt.Errorf("write-ahead log failed: %w", kv.ErrUnavailable)
	}
	ts := s.clock.next()
	ahead := max(markAhead-s.clock.lead, markLeast)
	if ts < s.mark.Add(-ahead/2) {
		return ts, nil
	}
	mark := ts.Add(ahead)
	batch := s.db.NewBatch()
	if err := batch.Set(markKey, encodeMark(mark), nil); err != nil {
		return 0, fmt.Errorf("encode the clock's mark: %w (%w)", kv.ErrUnavailable, err)
	}
	p, err := s.apply(batch, mark)
	if err != nil {
		return 0, err
	}
	s.mark, s.marked = mark, p
	return ts, nil
}

// cover is what must be durable before ts may be handed out. s.mu is held.
func (s *Store) cover(ts kv.Timestamp) *pending {
	if uint64(ts) < s.durableMark.Load() {
		return s.idle
	}
	return s.marked
}

// commit makes t's writes visible, all or none, and returns what to wait for.
func (s *Store) commit(t *txn, bound kv.UpdateOptions) (kv.Timestamp, *pending, error) {
	batch, err := t.encode()
	if err != nil {
		return 0, nil, err
	}
	ts, p, err := s.commitBatch(t, bound, batch)
	if err != nil && batch != nil {
		_ = batch.Close() // it was not applied
	}
	return ts, p, err
}

func (s *Store) commitBatch(t *txn, o kv.UpdateOptions, batch *pebble.Batch) (kv.Timestamp, *pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.retire(t)
	if i := s.recent.find(t.start, t.hashes); i >= 0 {
		return 0, nil, &kv.ConflictError{Key: append([]byte(nil), t.ops[i].key...)}
	}
	ts, err := s.stamp()
	if err != nil {
		return 0, nil, err
	}
	if o.Bound > 0 && ts > t.start.Add(o.Bound) {
		return 0, nil, fmt.Errorf("commit %s after its start: %w", ts.Sub(t.start), kv.ErrBound)
	}
	p := s.newest
	if batch != nil {
		if p, err = s.apply(batch, 0); err != nil {
			return 0, nil, err
		}
	}
	s.recent.add(ts, t.hashes)
	return ts, p, nil
}

// retire takes t off the open transactions, and forgets what only it could have conflicted with. s.mu is held.
func (s *Store) retire(t *txn) {
	if t.retired {
		return
	}
	t.retired = true
	s.updates.remove(&t.reader)
	if oldest := s.updates.oldest(); oldest != nil {
		s.recent.prune(oldest.start)
		return
	}
	s.recent.reset()
}
