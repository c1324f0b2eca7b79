package ingest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/store"
)

func TestTheWritersOfAProcessAreApartAndTheFirstSpeaksForAll(t *testing.T) {
	mem, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	st, err := store.Open(t.Context(), mem, store.Options{})
	require.NoError(t, err)
	id := hook.RunID{1, 15: 0xff}
	w := newWriters(st, id, 3)
	require.Equal(t, id, w[0].ID())
	require.Len(t, w.forCommits(), 3)
	require.Equal(t, []hook.RunID{{1, 15: 0xff}, {1}, {1, 15: 1}}, w.ids())
	require.NoError(t, w.flag().RaiseFlag(t.Context()))
	require.NoError(t, w.beat(t.Context()))
	records, err := st.Writers(t.Context())
	require.NoError(t, err)
	flags := map[hook.RunID]bool{}
	for _, r := range records {
		flags[r.ID] = r.Flagged
	}
	require.Equal(t, map[hook.RunID]bool{{1, 15: 0xff}: true, {1}: false, {1, 15: 1}: false}, flags)
}
