package store

import (
	"context"
	"fmt"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// Runner is the record of a runner that may hold leases. It stands before its first lease is pushed and goes with its
// goodbye, or after its loss is settled.
type Runner struct {
	ID   hook.RunID
	Name string
	// Longest lease that it may have been given.
	Longest time.Duration
}

// PutRunner records a runner.
func (l *Leader) PutRunner(ctx context.Context, r Runner) error {
	return l.cluster(ctx, "record runner", r.ID, func(t kv.Txn) error {
		return t.Put(runnerKey(r.ID[:]), newValue(64).text(2, r.Name).uint(3, uint64(r.Longest)))
	})
}

// RemoveRunner forgets a runner.
func (l *Leader) RemoveRunner(ctx context.Context, id hook.RunID) error {
	return l.cluster(ctx, "forget runner", id, func(t kv.Txn) error { return t.Delete(runnerKey(id[:])) })
}

// cluster changes a record of the cluster's under a fence of the first partition.
func (l *Leader) cluster(ctx context.Context, what string, id hook.RunID, change func(kv.Txn) error) error {
	slot := SlotOf(0, string(id[:]))
	select {
	case l.records <- struct{}{}:
		defer func() { <-l.records }()
	case <-ctx.Done():
		return fmt.Errorf("%s %x: %w", what, id, ctx.Err())
	}
	_, err := kv.Retry(ctx, l.store.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		if err := change(t); err != nil {
			return err
		}
		b, err := t.Get(ctx, fenceKey(slot))
		if err != nil {
			return err
		}
		return l.hold(t, slot, b)
	})
	if err != nil {
		return fmt.Errorf("%s %x: %w", what, id, err)
	}
	return nil
}

// Runners reads the records of all runners, page by page.
func (s *Store) Runners(ctx context.Context) (out []Runner, err error) {
	family := clusterKey(famRunner)
	err = s.pages(ctx, family.all(), func(p kv.Pair) error {
		rec := Runner{ID: hook.RunID(readKey(p.Key, len(family)).take(16))}
		err := decode("runner", p.Value, func(f field) error {
			switch f.num {
			case 2:
				rec.Name = string(f.b)
			case 3:
				rec.Longest = time.Duration(f.v)
			}
			return nil
		})
		out = append(out, rec)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runners: %w", err)
	}
	return out, nil
}

// sweepPage bounds the dedupe keys that one transaction removes.
const sweepPage = 256

// SweepExpired removes dedupe keys of one partition whose time is over at now, at most one page, and says whether
// there is more. Each is deleted only if the dedupe key still is expired; it may have been taken anew.
func (s *Store) SweepExpired(ctx context.Context, partition uint8, now hook.Timestamp) (more bool, err error) {
	family := partitionKey(partition, famExpiry)
	within := kv.Range{From: family, To: partitionKey(partition, famExpiry).u32(bucketOf(now) + 1)}
	_, err = kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		pairs, err := t.Scan(ctx, kv.Scan{Range: within, Limit: sweepPage, KeyOnly: true})
		if err != nil {
			return err
		}
		more = len(pairs) == sweepPage
		keys := make([][]byte, len(pairs))
		for i, p := range pairs {
			keys[i] = p.Key[len(family)+4:]
		}
		values, err := t.BatchGet(ctx, keys)
		if err != nil {
			return err
		}
		w := &puts{txn: t}
		for i, v := range values {
			w.delete(pairs[i].Key)
			d, err := decodeDedupe(v)
			if err != nil {
				return err
			}
			if v != nil && d.expires <= now {
				w.delete(keys[i])
			}
		}
		return w.err
	})
	if err != nil {
		return false, fmt.Errorf("sweep expired keys of partition %d: %w", partition, err)
	}
	return more, nil
}
