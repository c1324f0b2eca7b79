package store

import (
	"context"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// Fetched is what a runner needs before it delivers.
type Fetched struct {
	// Epoch that the row's partition is at: an attempt of a lower one comes from a deposed leader.
	Epoch uint64
	// Delivery is nil when the store has no such version of the row.
	Delivery *hook.Delivery
	// Hook is nil when the store does not have it.
	Hook *hook.Hook
}

// Fetch reads epochs, rows and hooks in one snapshot and one batch get; bodies above 1 MiB take a second one.
func (s *Store) Fetch(ctx context.Context, rows []hook.Row) ([]Fetched, error) {
	out := make([]Fetched, len(rows))
	keys := make([][]byte, 0, 2*len(rows)+1)
	for i := range rows {
		keys = append(keys, rowKey(&rows[i]), hookKey(rows[i].Partition, rows[i].Key.Tenant, rows[i].Hook))
	}
	epochs := make(map[uint8]int, 1) // by partition, where the value stands
	for i := range rows {
		if _, ok := epochs[rows[i].Partition]; !ok {
			epochs[rows[i].Partition] = len(keys)
			keys = append(keys, epochKey(rows[i].Partition))
		}
	}
	err := s.kv.View(ctx, func(r kv.Reader) error {
		values, err := r.BatchGet(ctx, keys)
		if err != nil {
			return err
		}
		for i := range rows {
			epoch := values[epochs[rows[i].Partition]]
			if out[i], err = s.fetched(ctx, r, &rows[i], epoch, values[2*i], values[2*i+1]); err != nil {
				return fmt.Errorf("hook %s: %w", rows[i].Hook, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fetch %d rows: %w", len(rows), err)
	}
	return out, nil
}

func (s *Store) fetched(
	ctx context.Context, r kv.Reader, row *hook.Row, epoch, state, stored []byte,
) (f Fetched, err error) {
	if f.Epoch, err = decodeEpoch(epoch); err != nil {
		return f, err
	}
	if state != nil {
		d, err := readRow(row, state)
		if err != nil {
			return f, err
		}
		if d != nil && d.Version == row.Version {
			f.Delivery = d
		}
	}
	if stored != nil {
		f.Hook, err = readHook(ctx, r, row.Partition, row.Key.Tenant, row.Hook, stored)
	}
	return f, err
}

// readHook completes a hook whose body stands in several values. A chunk that is missing is damage.
func readHook(ctx context.Context, r kv.Reader, partition uint8, tenant string, id hook.ID, value []byte) (*hook.Hook, error) {
	h, err := decodeHook(tenant, id, value)
	if err != nil || h.chunks == 0 {
		return &h.Hook, err
	}
	keys := make([][]byte, h.chunks)
	for c := range keys {
		keys[c] = bodyKey(partition, tenant, id, c+1)
	}
	values, err := r.BatchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	body := append(make([]byte, 0, (h.chunks+1)*chunkSize), h.Body...)
	for c, v := range values {
		if v == nil {
			return nil, fmt.Errorf("%w: chunk %d of the body is missing", ErrCorrupt, c+1)
		}
		body = append(body, v...)
	}
	h.Body = body
	return &h.Hook, nil
}
