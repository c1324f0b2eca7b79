package store

import (
	"context"
	"errors"
	"fmt"
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
)

// CreateSource stores a new source under a new incarnation, which rows carry, and returns it as stored.
func (s *Store) CreateSource(ctx context.Context, in *source.Source) (*source.Source, error) {
	out := *in
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		if _, err := t.Get(ctx, guardKey(in.Tenant, in.Name)); !errors.Is(err, kv.ErrNotFound) {
			return orElse(err, ErrSourceExists)
		}
		out.Incarnation = uint64(t.Timestamp())
		return putSource(t, &out, 0)
	})
	return wrapSource("create", in, &out, err)
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

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
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

// ListSources returns at most limit sources of an owner by name, those after a name.
func (s *Store) ListSources(ctx context.Context, owner, after string, limit int) (out []*source.Source, err error) {
	all := clusterKey(famSource).text(owner).all()
	if after != "" {
		all.From = successor(sourceKey(owner, after))
	}
	err = s.kv.View(ctx, func(r kv.Reader) error {
		pairs, err := r.Scan(ctx, kv.Scan{Range: all, Limit: limit})
		for i := 0; i < len(pairs) && err == nil; i++ {
			var src *source.Source
			if src, err = source.Unmarshal(pairs[i].Value); err == nil {
				out = append(out, src)
			}
		}
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
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{Bound: CommitBound}, attempts, func(t kv.Txn) error {
		g, err := readGuard(ctx, t, owner, name)
		if err != nil {
			return err
		}
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
