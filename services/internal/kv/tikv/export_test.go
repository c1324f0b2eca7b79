package tikv

import (
	"context"
	"math"

	tikverr "github.com/tikv/client-go/v2/error"

	"ankusa.dev/services/internal/kv"
)

func inner(s kv.Store) *Store {
	if c, ok := s.(*collecting); ok {
		return c.Store
	}
	return s.(*Store)
}

// PrefixOf is the key prefix of a store that Open returned.
func PrefixOf(s kv.Store) string { return string(inner(s).space) }

// ExistedAt reads one key as of a timestamp of the past.
func ExistedAt(ctx context.Context, s kv.Store, ts kv.Timestamp, key string) (bool, error) {
	_, err := inner(s).client.GetSnapshot(uint64(ts)).Get(ctx, inner(s).space.key([]byte(key)))
	if tikverr.IsErrNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// HoldBack keeps versions for another service of the cluster, from ts on.
func HoldBack(ctx context.Context, s kv.Store, ts kv.Timestamp) error {
	_, err := inner(s).client.GetPDClient().UpdateServiceGCSafePoint(ctx, "backup", math.MaxInt64, uint64(ts))
	return err
}
