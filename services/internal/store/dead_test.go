package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/faultkv"
)

// buried settles n hooks of a new source as dead letters.
func (b *bench) buried(name, tenant string, n int, body []byte) {
	src := b.source(name, 1)
	w, leader := b.NewWriter(random16()), b.lead()
	batch := make([]Incoming, n)
	for i := range batch {
		batch[i] = incoming(src, tenant, "", body)
	}
	_, groups := b.commit(w, batch...)
	var settles []hook.Settlement
	for _, d := range b.rows(groups) {
		settles = append(settles, settled(d, hook.Bury))
	}
	b.settle(leader, settles...)
}

// reads counts the calls that read while f runs, but for scans.
func (b *bench) reads(f func()) (n int) {
	b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
		if c.Op == faultkv.BatchGet || c.Op == faultkv.Get {
			n++
		}
		return faultkv.Fault{}
	})
	f()
	b.kv = b.port
	return n
}

func TestL45_AFilteredListingReadsDeadLettersByThePage(t *testing.T) {
	b := newBench(t, nil)
	b.buried("few", "acme", 3, []byte("x"))
	b.buried("many", "acme", 600, []byte("x"))
	var page DeadLetters
	calls := b.reads(func() {
		var err error
		page, err = b.DeadLetters(t.Context(), DeadFilter{SourceID: "few", Limit: 100})
		require.NoError(t, err)
	})
	require.Len(t, page.Entries, 3)
	require.EqualValues(t, 1, page.Entries[0].BodySize)
	require.Empty(t, page.Next)
	require.LessOrEqual(t, calls, 4, "three pages of dead letters, and the hooks of those that match")
}

func TestAFilteredListingGoesOnAfterTheLastThatWasListed(t *testing.T) {
	b := newBench(t, nil)
	b.buried("one", "acme", 7, []byte("x"))
	b.buried("two", "acme", 7, []byte("x"))
	f := DeadFilter{SourceID: "one", Limit: 2}
	seen := map[hook.ID]bool{}
	pages := 0
	for more := true; more; pages++ {
		page, err := b.DeadLetters(t.Context(), f)
		require.NoError(t, err)
		for _, e := range page.Entries {
			require.False(t, seen[e.Hook])
			seen[e.Hook] = true
		}
		f.Cursor, more = page.Next, page.Next != ""
	}
	require.Len(t, seen, 7)
	require.Equal(t, 4, pages)
}

func TestLargeBodiesOfAListingAreReadAFewAtATime(t *testing.T) {
	b := newBench(t, nil)
	b.buried("one", "acme", 10, make([]byte, chunkSize))
	calls := b.reads(func() {
		page, err := b.DeadLetters(t.Context(), DeadFilter{Limit: 100})
		require.NoError(t, err)
		require.Len(t, page.Entries, 10)
		require.EqualValues(t, chunkSize, page.Entries[9].BodySize)
	})
	require.Equal(t, 3, calls, "the dead letters at once, then no more than deadBodies of hooks")
}

func TestALimitOfZeroAsksForTheTotalAlone(t *testing.T) {
	b := newBench(t, nil)
	b.buried("one", "acme", 3, nil)
	b.buried("two", "beta", 2, nil)
	for tenant, total := range map[string]int64{"": 5, "acme": 3, "beta": 2, "other": 0} {
		page, err := b.DeadLetters(t.Context(), DeadFilter{Tenant: tenant})
		require.NoError(t, err)
		require.Empty(t, page.Entries)
		require.Empty(t, page.Next)
		require.Equal(t, total, page.Total)
	}
	page, err := b.DeadLetters(t.Context(), DeadFilter{SourceID: "one"})
	require.NoError(t, err)
	require.EqualValues(t, -1, page.Total, "nobody counts by filter")
}
