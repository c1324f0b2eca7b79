package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestCountersTellWhichSinksAWriterWroteTo(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("demo", 2)
	w, other := b.recorded(), b.recorded()
	_, groups := b.commit(w, incoming(src, "acme", "", []byte("x")))
	require.Len(t, groups, 2)
	first, second := SinkPart{groups[0].Partition, groups[0].Key}, SinkPart{groups[1].Partition, groups[1].Key}
	elsewhere, madeUp := first, first
	elsewhere.Partition++
	madeUp.Key.Tenant = "nobody"
	asked := []SinkPart{madeUp, first, elsewhere, second}
	for writers, want := range map[[2]hook.RunID][]bool{
		{w.ID(), other.ID()}:     {false, true, false, true},
		{other.ID(), random16()}: {false, false, false, false},
	} {
		written, err := b.Written(t.Context(), writers[:], asked)
		require.NoError(t, err)
		require.Equal(t, want, written)
	}
	many := make([]SinkPart, 3*writtenPage)
	for i := range many {
		many[i] = madeUp
	}
	many[2*writtenPage] = first
	written, err := b.Written(t.Context(), []hook.RunID{w.ID()}, many)
	require.NoError(t, err)
	for i, yes := range written {
		require.Equal(t, i == 2*writtenPage, yes)
	}
	written, err = b.Written(t.Context(), []hook.RunID{w.ID()}, nil)
	require.NoError(t, err)
	require.Empty(t, written)
}
