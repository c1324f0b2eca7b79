package store

import (
	"context"
	"time"

	"ankusa.dev/services/internal/kv"
)

const (
	// pageSize bounds the pairs that one snapshot reads of a range that may be of any length.
	pageSize = 1024
	// pageTimeout bounds the reading of one page: the whole has no length that a caller's deadline could fit, and a
	// region that does not answer must not hold the caller for ever.
	pageTimeout = 5 * time.Second
)

// pages visits the pairs of a range in key order. It reads page by page, each in a snapshot of its own, and visits a
// page when its snapshot is closed, so that visit may take its time.
func (s *Store) pages(ctx context.Context, within kv.Range, visit func(kv.Pair) error) error {
	for {
		pairs, err := s.page(ctx, within)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			if err := visit(p); err != nil {
				return err
			}
		}
		if len(pairs) < pageSize {
			return nil
		}
		within.From = after(pairs[len(pairs)-1].Key)
	}
}

func (s *Store) page(ctx context.Context, within kv.Range) (pairs []kv.Pair, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	err = s.kv.View(ctx, func(r kv.Reader) (err error) {
		pairs, err = r.Scan(ctx, kv.Scan{Range: within, Limit: pageSize})
		return err
	})
	return pairs, err
}
