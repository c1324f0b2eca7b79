package seed

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/store"
)

func newLibrary(t *testing.T) *Library {
	o := local.Default()
	o.CacheBytes, o.MemTableBytes = 1<<20, 1<<20
	return &Library{Dir: t.TempDir(), Options: o, Log: io.Discard}
}

// opened is a store on a copy of a template.
func opened(t *testing.T, l *Library, template Template) *store.Store {
	port, remove, err := l.Open(t.Context(), template)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, port.Close())
		require.NoError(t, remove())
	})
	s, err := store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	return s
}

// seeded makes rows of one source in a fresh store, for a tenant called acme.
func seeded(t *testing.T, ordered bool, r Rows) *store.Store {
	return opened(t, newLibrary(t), Template{Name: "x", Fill: func(ctx context.Context, s *Seeder) (err error) {
		if r.Source, err = s.Source(ctx, "demo", ordered); err != nil {
			return err
		}
		r.Tenants = []string{"acme"}
		return s.Add(ctx, r)
	}})
}

func outstanding(t *testing.T, s *store.Store) (rows int64) {
	for p := range s.Partitions() {
		require.NoError(t, s.Outstanding(t.Context(), uint8(p), func(w store.Work) { rows += w.Rows }))
	}
	return rows
}

var acmesKey = hook.SinkKey{Tenant: "acme", SourceID: "demo", Type: "log"}

func due(t *testing.T, s *store.Store) []hook.Delivery {
	page, err := s.ScanDue(t.Context(), store.DueScan{Partition: s.Partition("acme", 0), Key: acmesKey, Limit: 10_000})
	require.NoError(t, err)
	return page.Rows
}

func TestRowsWaitAsIngestLeavesThem(t *testing.T) {
	s := seeded(t, false, Rows{Each: batch + 7})
	require.EqualValues(t, batch+7, outstanding(t, s))
	rows := due(t, s)
	require.Len(t, rows, batch+7)
	found, err := s.Fetch(t.Context(), []hook.Row{rows[0].Row, rows[batch].Row})
	require.NoError(t, err)
	for i, row := range []hook.Delivery{rows[0], rows[batch]} {
		require.Equal(t, row.Due, row.Version, "due on sight")
		require.Len(t, found[i].Hook.Body, bodyBytes)
		require.Equal(t, row.State, found[i].Delivery.State)
	}
}

func TestDeliveredRowsAreGoneAndCounted(t *testing.T) {
	s := seeded(t, false, Rows{Each: 300, Then: Delivered})
	require.Zero(t, outstanding(t, s))
	require.Empty(t, due(t, s))
}

func TestFailedRowsAreDueLater(t *testing.T) {
	s := seeded(t, false, Rows{Each: 3, Then: Failed(time.Hour)})
	require.EqualValues(t, 3, outstanding(t, s))
	rows := due(t, s)
	require.Len(t, rows, 3)
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	require.InDelta(t, time.Hour, rows[0].Due.Sub(now), float64(time.Minute))
	require.EqualValues(t, 1, rows[0].Attempts)
	require.Positive(t, rows[0].FirstAttemptAt)
}

func TestLanesHaveTheirRowsInTurns(t *testing.T) {
	s := seeded(t, true, Rows{Each: 10, Lanes: 4})
	page, err := s.ScanLanes(t.Context(), store.LaneScan{Partition: s.Partition("acme", 0), Key: acmesKey, Lanes: 10, Members: 10})
	require.NoError(t, err)
	members := map[string]int{}
	for _, lane := range page.Lanes {
		members[lane.Lane] = len(lane.Rows)
	}
	require.Equal(t, map[string]int{"lane-0": 3, "lane-1": 3, "lane-2": 2, "lane-3": 2}, members)
}

func TestMembersCanBeDelivered(t *testing.T) {
	s := seeded(t, true, Rows{Each: 10, Lanes: 4, Then: Delivered})
	require.Zero(t, outstanding(t, s))
	page, err := s.ScanLanes(t.Context(), store.LaneScan{Partition: s.Partition("acme", 0), Key: acmesKey, Lanes: 10, Members: 10})
	require.NoError(t, err)
	require.Empty(t, page.Lanes)
}

func TestACopyChangesNothingOfItsTemplate(t *testing.T) {
	l, fills := newLibrary(t), 0
	template := Template{Name: "x", Fill: func(ctx context.Context, s *Seeder) error {
		fills++
		src, err := s.Source(ctx, "demo", false)
		if err != nil {
			return err
		}
		return s.Add(ctx, Rows{Source: src, Tenants: []string{"acme"}, Each: 5000})
	}}
	for range 3 {
		port, remove, err := l.Open(t.Context(), template)
		require.NoError(t, err)
		s, err := store.Open(t.Context(), port, store.Options{})
		require.NoError(t, err)
		require.EqualValues(t, 5000, outstanding(t, s))
		require.NoError(t, port.DropRange(t.Context(), kv.Range{}))
		require.NoError(t, port.Close())
		require.NoError(t, remove())
	}
	require.Equal(t, 1, fills)
	left, err := os.ReadDir(l.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "a copy is removed")
}

func TestTablesAreSharedAndLogsAreCopied(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for _, name := range []string{"000001.sst", "000002.log"} {
		require.NoError(t, os.WriteFile(filepath.Join(from, name), []byte(name), 0o600))
	}
	require.NoError(t, duplicate(from, to))
	for name, shared := range map[string]bool{"000001.sst": true, "000002.log": false} {
		a, err := os.Stat(filepath.Join(from, name))
		require.NoError(t, err)
		b, err := os.Stat(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, shared, os.SameFile(a, b), name)
		text, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, name, string(text))
	}
}
