package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/source"
)

var (
	// ErrSourceExists: the owner has a source of that name.
	ErrSourceExists = errors.New("source exists")
	// ErrSourceNotFound: the owner has no source of that name.
	ErrSourceNotFound = errors.New("source not found")
	// ErrTooManySources: the owner has more sources than were asked for.
	ErrTooManySources = errors.New("too many sources")
)

// CreateSource stores a new source under a new incarnation, which rows carry, and returns it as stored.
func (s *Store) CreateSource(ctx context.Context, in *source.Source) (*source.Source, error) {
	out := *in
	var tried []uint64 // incarnations, each unique to a try
	err := s.surely(ctx, kv.UpdateOptions{}, func(t kv.Txn) error {
		g, err := readGuard(ctx, t, in.Tenant, in.Name)
		switch {
		case err == nil && slices.Contains(tried, g.incarnation):
			out.Incarnation, out.Revision = g.incarnation, hook.Timestamp(g.incarnation)
			return nil
		case err == nil:
			return ErrSourceExists
		case !errors.Is(err, ErrSourceNotFound):
			return err
		}
		out.Incarnation = uint64(t.Timestamp())
		tried = append(tried, out.Incarnation)
		return putSource(t, &out, 0)
	})
	return wrapSource("create", in, &out, err)
}

// fateTries bounds the tries at a commit whose fate stays unknown.
const fateTries = 3

// surely is kv.Retry, and tries again where it is unknown whether a commit has landed. Every try writes a key that those
// before have written, so that at most one of them lands, and fn tells from what it reads whether one has.
func (s *Store) surely(ctx context.Context, o kv.UpdateOptions, fn func(kv.Txn) error) (err error) {
	for range fateTries {
		_, err = kv.Retry(ctx, s.kv, o, attempts, fn)
		if !errors.Is(err, kv.ErrUndetermined) || ctx.Err() != nil {
			break
		}
	}
	return err
}

// UpdateSource replaces a source and keeps its incarnation; whatever is fixed for an incarnation must be unchanged,
// which the caller has checked.
func (s *Store) UpdateSource(ctx context.Context, in *source.Source) (*source.Source, error) {
	out := *in
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		g, err := readGuard(ctx, t, in.Tenant, in.Name)
		if err != nil {
			return err
		}
		out.Incarnation = g.incarnation
		return putSource(t, &out, g.closed)
	})
	return wrapSource("update", in, &out, err)
}

// readGuard fails with ErrSourceNotFound where there is no source.
func readGuard(ctx context.Context, r kv.Reader, owner, name string) (guard, error) {
	b, err := r.Get(ctx, guardKey(owner, name))
	if errors.Is(err, kv.ErrNotFound) {
		return guard{}, ErrSourceNotFound
	}
	if err != nil {
		return guard{}, err
	}
	return decodeGuard(b)
}

func wrapSource(verb string, in, out *source.Source, err error) (*source.Source, error) {
	if err != nil {
		return nil, fmt.Errorf("%s source %s: %w", verb, in.ID(), err)
	}
	return out, nil
}

// putSource writes a source and the guard that ingest's commits read.
func putSource(t kv.Txn, src *source.Source, closed hook.Timestamp) error {
	src.Revision = t.Timestamp()
	b, err := src.Marshal()
	if err != nil {
		return err
	}
	g := guard{incarnation: src.Incarnation, closed: closed, revision: src.Revision}
	if err := t.Put(guardKey(src.Tenant, src.Name), g.encode()); err != nil {
		return err
	}
	return t.Put(sourceKey(src.Tenant, src.Name), b)
}

// Source reads one source, or fails with ErrSourceNotFound.
func (s *Store) Source(ctx context.Context, owner, name string) (out *source.Source, err error) {
	err = s.kv.View(ctx, func(r kv.Reader) error {
		b, err := r.Get(ctx, sourceKey(owner, name))
		if errors.Is(err, kv.ErrNotFound) {
			return ErrSourceNotFound
		}
		if err == nil {
			out, err = source.Unmarshal(b)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read source %s/%s: %w", owner, name, err)
	}
	return out, nil
}

// ListSources returns all sources of an owner by name, read page by page, or fails with ErrTooManySources where there
// are more than most.
func (s *Store) ListSources(ctx context.Context, owner string, most int) (out []*source.Source, err error) {
	err = s.pages(ctx, clusterKey(famSource).text(owner).all(), func(p kv.Pair) error {
		if len(out) == most {
			return ErrTooManySources
		}
		src, err := source.Unmarshal(p.Value)
		out = append(out, src)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list sources of %s: %w", owner, err)
	}
	return out, nil
}

// closing is how long a deletion may take: then the source is open again, whatever became of whoever deletes it.
const closing = time.Minute

// CloseSource marks a source so that no commit begun from now on takes a hook for it, until a minute has passed.
func (s *Store) CloseSource(ctx context.Context, owner, name string) error {
	return s.setClosed(ctx, "close", owner, name, func(now hook.Timestamp) hook.Timestamp { return now.Add(closing) })
}

// ReopenSource takes that back.
func (s *Store) ReopenSource(ctx context.Context, owner, name string) error {
	return s.setClosed(ctx, "reopen", owner, name, func(hook.Timestamp) hook.Timestamp { return 0 })
}

func (s *Store) setClosed(
	ctx context.Context, verb, owner, name string, until func(now hook.Timestamp) hook.Timestamp,
) error {
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		g, err := readGuard(ctx, t, owner, name)
		if err != nil {
			return err
		}
		g.closed = until(t.Timestamp())
		return t.Put(guardKey(owner, name), g.encode())
	})
	if err != nil {
		return fmt.Errorf("%s source %s/%s: %w", verb, owner, name, err)
	}
	return nil
}

// RemoveSource deletes a source of the given incarnation that stays closed until the deletion has committed, or fails
// with ErrSourceChanged.
func (s *Store) RemoveSource(ctx context.Context, owner, name string, incarnation uint64) error {
	tried := false
	err := s.surely(ctx, kv.UpdateOptions{Bound: CommitBound}, func(t kv.Txn) error {
		g, err := readGuard(ctx, t, owner, name)
		if tried && errors.Is(err, ErrSourceNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		tried = true
		if t.Timestamp().Add(CommitBound) >= g.closed || g.incarnation != incarnation {
			return ErrSourceChanged
		}
		if err := t.Delete(guardKey(owner, name)); err != nil {
			return err
		}
		return t.Delete(sourceKey(owner, name))
	})
	if err != nil {
		return fmt.Errorf("remove source %s/%s: %w", owner, name, err)
	}
	return nil
}
