package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// ErrSourceChanged: the source that took the hook is deleted, closed for deletion, or another incarnation by now.
var ErrSourceChanged = errors.New("source changed")

// Binding is one sink that a hook is owed to.
type Binding struct {
	Key     hook.SinkKey
	Ordered bool
	Lane    string
}

// Incoming is a hook that waits for its commit.
type Incoming struct {
	Hook *hook.Hook
	// Owner and Name are the source's identity in the store.
	Owner, Name string
	// Bindings has one entry for each sink of the source, at least one.
	Bindings []Binding
	// DedupeTTL is how long Hook.DedupeKey, if any, stands.
	DedupeTTL time.Duration
}

// Accepted is the fate of one Incoming within a batch that was committed.
type Accepted struct {
	// Duplicate is the id of the hook that the provider's event made first; nothing was stored for this one.
	Duplicate *hook.ID
	// Err: this hook alone was not stored.
	Err error
}

// Writer commits the hooks of one run of an ingest process, one batch at a time for each partition. It is safe for
// concurrent use; calls for one partition wait for each other.
type Writer struct {
	store    *Store
	id       hook.RunID
	flagged  atomic.Bool
	recorded atomic.Bool
	parts    []partWriter
}

type partWriter struct {
	mu       sync.Mutex
	counters map[hook.SinkKey]counter
	// unresolved: the last commit's fate is unknown, and no counter in memory can be trusted until it is.
	unresolved *attempt
	// late holds what commits wrote that were found to have landed after their callers had been told otherwise.
	late []hook.Group
}

// maxCounters bounds the counters that a writer remembers for one partition; forgotten ones are read again.
const maxCounters = 8192

// NewWriter starts a writer. id must be new at each start of the process: its counters are its alone.
func (s *Store) NewWriter(id hook.RunID) *Writer {
	return &Writer{store: s, id: id, parts: make([]partWriter, s.partitions)}
}

// ID is the writer's identity.
func (w *Writer) ID() hook.RunID { return w.id }

// Commit makes the hooks of one partition durable. All that it stores is durable and named in the groups on return,
// and the groups may name rows of an earlier commit whose fate was unknown; they count also beside an error. Inputs
// whose dedupe key another commit took meanwhile are decided again, alone; the rest is not held up by them.
//
// An input's error, and the error of the whole, is of kind kv.ErrUnavailable, kv.ErrBound, kv.ErrConflict or
// kv.ErrTooLarge where nothing was stored, and kv.ErrUndetermined where that is not known: then the next Commit, or
// Resolve, finds out and names what landed.
func (w *Writer) Commit(ctx context.Context, partition uint8, batch []Incoming) ([]Accepted, []hook.Group, error) {
	p := &w.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := w.resolve(ctx, p); err != nil {
		return nil, nil, fmt.Errorf("resolve the commit before: %w: %w", kv.ErrUnavailable, err)
	}
	if err := w.introduce(ctx); err != nil {
		return nil, p.takeLate(), fmt.Errorf("%w: %v", kv.ErrUnavailable, err)
	}
	c := commit{writer: w, part: p, partition: partition, groups: p.takeLate()}
	result := c.all(ctx, batch)
	return result, append(c.groups, p.takeLate()...), c.whole(result)
}

// Resolve finds out what became of a commit whose fate was unknown, and names the rows if it landed. It returns nil
// errors when there is nothing to resolve.
func (w *Writer) Resolve(ctx context.Context, partition uint8) ([]hook.Group, error) {
	p := &w.parts[partition]
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := w.resolve(ctx, p); err != nil {
		return nil, fmt.Errorf("resolve partition %d: %w", partition, err)
	}
	return p.takeLate(), nil
}

func (p *partWriter) takeLate() []hook.Group {
	late := p.late
	p.late = nil
	return late
}

// commit is one call of Commit: parts of the batch are committed apart where one would hold up the others.
type commit struct {
	writer    *Writer
	part      *partWriter
	partition uint8
	groups    []hook.Group
	err       error
	failed    int
}

func (c *commit) all(ctx context.Context, batch []Incoming) []Accepted {
	result := make([]Accepted, len(batch))
	every := make([]int, len(batch))
	for i := range every {
		every[i] = i
	}
	for sets := [][]int{every}; len(sets) > 0; {
		set := sets[0]
		sets = append(sets[1:], c.set(ctx, batch, set, result)...)
	}
	return result
}

// whole is the error of a batch of which nothing is known to be stored.
func (c *commit) whole(result []Accepted) error {
	if c.err == nil || c.failed < len(result) {
		return nil
	}
	return fmt.Errorf("commit %d hooks in partition %d: %w", len(result), c.partition, c.err)
}

// set commits some of the batch. It returns the sets that are to be tried instead, if any.
func (c *commit) set(ctx context.Context, batch []Incoming, set []int, result []Accepted) [][]int {
	some := make([]Incoming, len(set))
	for i, at := range set {
		some[i] = batch[at]
	}
	var err error
	for tries := 1; tries <= attempts; tries++ {
		if err = c.settled(ctx); err != nil {
			break
		}
		a := &attempt{writer: c.writer, part: c.part, partition: c.partition, batch: some, result: make([]Accepted, len(some))}
		if err = c.writer.try(ctx, a); err == nil {
			for i, at := range set {
				result[at] = a.result[i]
			}
			c.groups = append(c.groups, a.groups...)
			return nil
		}
		if apart, rest := c.conflicting(err, batch, set); len(apart) > 0 && len(rest) > 0 {
			return [][]int{rest, apart}
		}
		if !errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrBound) {
			break
		}
	}
	if errors.Is(err, kv.ErrTooLarge) && len(set) > 1 {
		return [][]int{set[:len(set)/2], set[len(set)/2:]}
	}
	c.fail(err, set, result)
	return nil
}

// settled makes sure that the fate of the set before is known: the counters go on from what it left.
func (c *commit) settled(ctx context.Context) error {
	if err := c.writer.resolve(ctx, c.part); err != nil {
		return fmt.Errorf("%w: the fate of another part is unknown: %v", kv.ErrUnavailable, err)
	}
	return nil
}

// fail gives the inputs of a set their error. For the whole an unknown fate outweighs a known one.
func (c *commit) fail(err error, set []int, result []Accepted) {
	if c.err == nil || errors.Is(err, kv.ErrUndetermined) {
		c.err = err
	}
	c.failed += len(set)
	for _, at := range set {
		result[at] = Accepted{Err: err}
	}
}

// conflicting parts a set by the dedupe key that conflicted.
func (c *commit) conflicting(err error, batch []Incoming, set []int) (apart, rest []int) {
	var conflict *kv.ConflictError
	if !errors.As(err, &conflict) {
		return nil, nil
	}
	for _, at := range set {
		h := batch[at].Hook
		if h.DedupeKey != "" && bytes.Equal(dedupeKey(c.partition, h.Tenant, h.SourceID, h.DedupeKey), conflict.Key) {
			apart = append(apart, at)
			continue
		}
		rest = append(rest, at)
	}
	return apart, rest
}

// try commits once. After a commit whose fate is unknown it asks the writer's own counter.
func (w *Writer) try(ctx context.Context, a *attempt) error {
	_, err := w.store.kv.Update(ctx, kv.UpdateOptions{Bound: CommitBound}, func(t kv.Txn) error { return a.run(ctx, t) })
	if err == nil {
		a.remember()
		return nil
	}
	if !a.wrote || !errors.Is(err, kv.ErrUndetermined) && ctx.Err() == nil {
		return err
	}
	a.part.unresolved = a
	if w.resolve(ctx, a.part) != nil {
		return fmt.Errorf("%w: %w", kv.ErrUndetermined, err)
	}
	if a.landed {
		a.part.late = a.part.late[:len(a.part.late)-len(a.groups)] // they are this call's own
		return nil
	}
	return fmt.Errorf("%w: commit did not land: %v", kv.ErrUnavailable, err)
}

// resolve finds out what became of the last commit: one counter that it wrote tells.
func (w *Writer) resolve(ctx context.Context, p *partWriter) (err error) {
	a := p.unresolved
	if a == nil {
		return nil
	}
	for key, want := range a.counters {
		if a.landed, err = w.store.counted(ctx, counterKey(a.partition, key, w.id[:]), want); err != nil {
			return err
		}
		break
	}
	if a.landed {
		p.late = append(p.late, a.groups...)
	}
	p.unresolved, p.counters = nil, nil
	return nil
}

// counted says whether the commit that set a counter to a value has landed, asked by the counter's only writer. The
// counter is locked for that, so that a commit which has not landed by now never will.
func (s *Store) counted(ctx context.Context, key []byte, want counter) (yes bool, err error) {
	_, err = kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		if err := t.Lock(ctx, key); err != nil {
			return err
		}
		got, err := readCounter(ctx, t, key)
		yes = err == nil && got == want
		return err
	})
	return yes && err == nil, err
}

func readCounter(ctx context.Context, r kv.Reader, key []byte) (counter, error) {
	b, err := r.Get(ctx, key)
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return counter{}, err
	}
	return decodeCounter(b)
}
