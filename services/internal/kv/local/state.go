package local

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"ankusa.dev/services/internal/kv"
)

// state is a snapshot of the engine that views share, and a timestamp: it holds every commit up to it and none above.
type state struct {
	snap  *pebble.Snapshot
	start kv.Timestamp
	users int // views, and the store while it may yet hand the state out
}

// freeze takes the state as it is now. s.mu is held, or nobody else has the store yet.
func (s *Store) freeze() *state {
	v := &state{snap: s.db.NewSnapshot(), start: s.clock.last, users: 1}
	s.states[v] = struct{}{}
	return v
}

// advance has views read a state that has become durable.
func (s *Store) advance(to *state) {
	s.mu.Lock()
	old := s.durable
	s.durable = to
	s.mu.Unlock()
	s.release(old)
}

// beginView points r at the newest durable state. Where no write is on its way to the disk that is the state of now, and
// gets a timestamp that says so.
func (s *Store) beginView(ctx context.Context, r *reader) (*state, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed.Load() {
		return nil, fmt.Errorf("write-ahead log failed: %w", kv.ErrUnavailable)
	}
	v := s.durable
	if s.written.over() {
		now, err := s.stamp()
		if err != nil {
			return nil, err
		}
		v.start = now
	}
	v.users++
	r.s, r.start, r.seen, r.snap = s, v.start, s.cover(v.start), v.snap
	return v, nil
}

// release gives a state back; the last user closes it.
func (s *Store) release(v *state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.users--; v.users == 0 {
		s.closeState(v)
	}
}

// closeState closes a state once. s.mu is held.
func (s *Store) closeState(v *state) {
	if _, open := s.states[v]; open {
		delete(s.states, v)
		_ = v.snap.Close() // fails only on a snapshot that is closed
	}
}

// closeStates closes the states that are left, in use or not: the store is closed, and nobody reads any more.
func (s *Store) closeStates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.states {
		s.closeState(v)
	}
}
