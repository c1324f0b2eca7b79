package store

import (
	"context"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// SinkPart is a sink's rows in one partition.
type SinkPart struct {
	Partition uint8
	Key       hook.SinkKey
}

// writtenPage bounds the keys of one snapshot's batch get.
const writtenPage = 4096

// Written says for each part whether one of the writers has ever committed a row of it, or the counters of one that is
// gone were folded: where it says no, none of the writers has a row there. It may say yes where all rows have ended.
func (s *Store) Written(ctx context.Context, writers []hook.RunID, parts []SinkPart) ([]bool, error) {
	written := make([]bool, len(parts))
	each := len(writers) + 1 // and the leader's, which the folded ones are in
	for from := 0; from < len(parts); {
		n := min(max(1, writtenPage/each), len(parts)-from)
		if err := s.writtenPage(ctx, writers, parts[from:from+n], written[from:from+n]); err != nil {
			return nil, fmt.Errorf("look for counters of %d sinks: %w", len(parts), err)
		}
		from += n
	}
	return written, nil
}

func (s *Store) writtenPage(ctx context.Context, writers []hook.RunID, parts []SinkPart, written []bool) error {
	var keys [][]byte
	for _, p := range parts {
		keys = append(keys, counterKey(p.Partition, p.Key, nil))
		for _, w := range writers {
			keys = append(keys, counterKey(p.Partition, p.Key, w[:]))
		}
	}
	return s.kv.View(ctx, func(r kv.Reader) error {
		values, err := r.BatchGet(ctx, keys)
		if err != nil {
			return err
		}
		each := len(writers) + 1
		for i, v := range values {
			written[i/each] = written[i/each] || v != nil
		}
		return nil
	})
}
