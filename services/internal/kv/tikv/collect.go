package tikv

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	client "github.com/tikv/client-go/v2/tikv"

	"ankusa.dev/services/internal/kv"
)

// gcWorker is the one name under which PD lets the transaction safe point be moved. It must not expire.
const gcWorker = "gc_worker"

// collecting is a Store that collects its cluster's old versions.
type collecting struct {
	*Store
	settle time.Duration
}

var _ kv.Collector = (*collecting)(nil)

// Collect implements kv.Collector. It takes as long as every client of the cluster needs to notice, by default nearly
// two minutes, and is safe to abandon and to repeat. It collects the whole cluster, not the store's prefix alone.
func (c *collecting) Collect(ctx context.Context, safe kv.Timestamp) (kv.Timestamp, error) {
	var got uint64
	err := c.long(ctx, "collect", func(ctx context.Context) (err error) {
		got, err = c.collect(ctx, uint64(safe))
		return err
	})
	if err != nil {
		return 0, err
	}
	return kv.Timestamp(got), nil
}

// The order matters: nobody may read below the point when the first version goes, and no lock below it may be left,
// since its transaction's fate could be among the versions that go.
func (c *collecting) collect(ctx context.Context, safe uint64) (uint64, error) {
	allowed, err := c.reserve(ctx, safe)
	if err != nil {
		return 0, err
	}
	if err := c.publish(allowed); err != nil {
		return 0, err
	}
	if err := pause(ctx, c.settle); err != nil {
		return 0, err
	}
	// GC resolves the locks, then moves PD's point; TiKV does the rest when it likes.
	moved, err := c.client.GC(ctx, allowed)
	if err != nil {
		return 0, fmt.Errorf("resolve locks and move PD's safe point: %w", err)
	}
	return min(moved, safe), nil
}

// reserve moves the point below which PD lets nobody read, as far as the other users of the cluster allow, and says
// how far that is. A point that is further already is no error.
func (c *collecting) reserve(ctx context.Context, safe uint64) (uint64, error) {
	// Removing a name that never was only asks for the lowest point in force. PD refuses to lower its own.
	current, err := c.client.GetPDClient().UpdateServiceGCSafePoint(ctx, "ankusa", 0, 0)
	if err != nil {
		return 0, fmt.Errorf("read PD's service safe point: %w", err)
	}
	if current >= safe && current != math.MaxUint64 {
		return safe, nil
	}
	allowed, err := c.client.GetPDClient().UpdateServiceGCSafePoint(ctx, gcWorker, math.MaxInt64, safe)
	if err != nil {
		return 0, fmt.Errorf("move PD's service safe point: %w", err)
	}
	return min(allowed, safe), nil
}

// publish tells the point to the clients, unless they know of a later one.
func (c *collecting) publish(point uint64) error {
	known, err := c.safe.Get(client.GcSavedSafePoint)
	if err != nil {
		return fmt.Errorf("read the published safe point: %w", err)
	}
	if at, err := strconv.ParseUint(known, 10, 64); err == nil && at >= point {
		return nil
	}
	if err := c.safe.Put(client.GcSavedSafePoint, strconv.FormatUint(point, 10)); err != nil {
		return fmt.Errorf("publish the safe point: %w", err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
