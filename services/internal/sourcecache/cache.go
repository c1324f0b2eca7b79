// Package sourcecache keeps sources near their users: read through, bounded, at most TTL old, and never by polling.
package sourcecache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// Reader reads a source from the store, or fails with store.ErrSourceNotFound.
type Reader interface {
	Source(ctx context.Context, owner, name string) (*source.Source, error)
}

// Config of a Cache.
type Config struct {
	// TTL is how old an answer may be, the answer that there is no such source included. Default 1 s.
	TTL time.Duration
	// MaxSources and MaxUnknown bound what is remembered; the least recently used goes. Default 10,000 and 1,024.
	MaxSources, MaxUnknown int
	// Timeout bounds one read of the store. Default 5 s.
	Timeout time.Duration
}

// Default returns the configuration that each field's comment states.
func Default() Config {
	return Config{TTL: time.Second, MaxSources: 10_000, MaxUnknown: 1_024, Timeout: 5 * time.Second}
}

// Cache holds for each source what build makes of it; the same value is returned for as long as the revision stays. It
// is safe for concurrent use.
type Cache[T any] struct {
	reader Reader
	config Config
	build  func(*source.Source) T
	gone   func(T)

	mu      sync.Mutex
	entries map[key]*entry[T]
	known   list.List // of *entry[T], the most recently used first
	unknown list.List
}

type key struct{ owner, name string }

// entry is what is known about one key. Its flight, if any, is the read under way.
type entry[T any] struct {
	key     key
	source  *source.Source // nil: there is none, or nothing is known yet
	value   T
	expires time.Time
	flight  *flight[T]
	place   *list.Element
	home    *list.List
}

// flight is one read; its results are set before done is closed.
type flight[T any] struct {
	done   chan struct{}
	source *source.Source
	value  T
	err    error
}

// New makes a cache. build is called under the cache's lock and must be quick; gone, which may be nil, is told every value
// that left the cache, since its source changed, was deleted or made room. Neither may call the cache.
func New[T any](r Reader, c Config, build func(*source.Source) T, gone func(T)) *Cache[T] {
	if gone == nil {
		gone = func(T) {}
	}
	return &Cache[T]{reader: r, config: c, build: build, gone: gone, entries: map[key]*entry[T]{}}
}

// Plain is a cache of the sources themselves.
func Plain(r Reader, c Config) *Cache[*source.Source] {
	return New(r, c, func(s *source.Source) *source.Source { return s }, nil)
}

// Source returns what is known of a source, read anew where that is older than TTL. It fails with
// store.ErrSourceNotFound only when the store said so within TTL, and with the store's error when it cannot answer.
func (c *Cache[T]) Source(ctx context.Context, owner, name string) (T, error) {
	return c.get(ctx, key{owner, name}, func(e *entry[T]) bool { return true })
}

// AtLeast is Source, but reads anew also where what is known is older than the revision.
func (c *Cache[T]) AtLeast(ctx context.Context, owner, name string, revision hook.Timestamp) (T, error) {
	return c.get(ctx, key{owner, name}, func(e *entry[T]) bool {
		return e.source != nil && e.source.Revision >= revision
	})
}

// Forget makes the next call for the source read the store, even while a read is under way.
func (c *Cache[T]) Forget(owner, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key{owner, name}]; e != nil {
		e.expires, e.flight = time.Time{}, nil
	}
}

// Len is the number of sources, and of keys known to be none, that are remembered.
func (c *Cache[T]) Len() (sources, unknown int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known.Len(), c.unknown.Len()
}

func (c *Cache[T]) get(ctx context.Context, k key, enough func(*entry[T]) bool) (T, error) {
	c.mu.Lock()
	e := c.entries[k]
	if e != nil && e.place != nil && enough(e) && time.Now().Before(e.expires) {
		e.home.MoveToFront(e.place)
		value, found := e.value, e.source != nil
		c.mu.Unlock()
		return value, notFound(found, k)
	}
	if e != nil && e.flight != nil {
		return c.join(ctx, k, e.flight, enough)
	}
	if e == nil {
		e = &entry[T]{key: k}
		c.entries[k] = e
	}
	f := &flight[T]{done: make(chan struct{})}
	e.flight = f
	c.mu.Unlock()
	c.read(ctx, e, f)
	return f.value, f.err
}

// join waits for a read that another call began, and begins one where that read is not enough, since it may have seen
// the store before the caller heard of a revision. It is called with the lock held.
func (c *Cache[T]) join(ctx context.Context, k key, f *flight[T], enough func(*entry[T]) bool) (T, error) {
	c.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		var zero T
		return zero, fmt.Errorf("read source %s: %w", source.ID(k.owner, k.name), context.Cause(ctx))
	}
	if f.err != nil && !errors.Is(f.err, store.ErrSourceNotFound) || enough(&entry[T]{source: f.source}) {
		return f.value, f.err
	}
	return c.get(ctx, k, enough)
}

// read asks the store, on behalf of everybody who waits: the end of the first caller's context does not end it.
func (c *Cache[T]) read(ctx context.Context, e *entry[T], f *flight[T]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
	defer cancel()
	defer close(f.done)
	f.err = errAbandoned // for those who wait, should the reader panic
	defer c.land(e, f)
	asked := time.Now()
	s, err := c.reader.Source(ctx, e.key.owner, e.key.name)
	if f.err = nil; err != nil {
		s, f.err = nil, fmt.Errorf("read source %s: %w", source.ID(e.key.owner, e.key.name), err)
	}
	for _, left := range c.store(e, f, s, asked) {
		c.gone(left)
	}
}

// errAbandoned: the read ended in a panic.
var errAbandoned = errors.New("read abandoned")

// land makes sure that no entry waits for a read that is over.
func (c *Cache[T]) land(e *entry[T], f *flight[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.flight == f {
		e.flight = nil
	}
	if e.place == nil && e.flight == nil && c.entries[e.key] == e {
		delete(c.entries, e.key)
	}
}

// store takes over the result of a read, unless the entry was forgotten or made room meanwhile, and returns the values
// that left.
func (c *Cache[T]) store(e *entry[T], f *flight[T], s *source.Source, asked time.Time) (left []T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := s != nil && !e.holds(s)
	if f.source = s; fresh {
		f.value = c.build(s)
	} else if s != nil {
		f.value = e.value
	}
	if e.flight != f || c.entries[e.key] != e {
		if fresh {
			left = append(left, f.value)
		}
		return left
	}
	if f.err != nil && !errors.Is(f.err, store.ErrSourceNotFound) {
		return nil
	}
	if e.source != nil && (s == nil || fresh) {
		left = append(left, e.value)
	}
	e.source, e.value, e.expires = s, f.value, asked.Add(c.config.TTL)
	return c.keep(e, left)
}

// holds says whether the value at hand was made of a source that has not changed.
func (e *entry[T]) holds(s *source.Source) bool {
	o := e.source
	return o != nil && o.Revision == s.Revision && o.Incarnation == s.Incarnation
}

// keep files the entry as the most recently used of its kind and evicts what is then too much.
func (c *Cache[T]) keep(e *entry[T], left []T) []T {
	home, limit := &c.unknown, c.config.MaxUnknown
	if e.source != nil {
		home, limit = &c.known, c.config.MaxSources
	}
	if e.place != nil {
		e.home.Remove(e.place)
	}
	e.home, e.place = home, home.PushFront(e)
	for home.Len() > limit {
		old := home.Remove(home.Back()).(*entry[T])
		delete(c.entries, old.key)
		if old.place = nil; old.source != nil {
			left = append(left, old.value)
		}
	}
	return left
}

func notFound(found bool, k key) error {
	if found {
		return nil
	}
	return fmt.Errorf("read source %s: %w", source.ID(k.owner, k.name), store.ErrSourceNotFound)
}
