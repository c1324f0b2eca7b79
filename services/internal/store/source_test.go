package store

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/source"
)

// unsure has the next n commits answer that nobody knows what became of them.
func (b *bench) unsure(kind faultkv.Kind, n int) {
	b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
		if c.Op == faultkv.Update && c.N < n {
			return faultkv.Fault{Kind: kind}
		}
		return faultkv.Fault{}
	})
}

func logged(name string) *source.Source {
	src := source.New(hook.DefaultTenant, name)
	src.Sinks = []source.Sink{{Type: source.SinkLog}}
	return src
}

func TestASourceWhoseCommitLandedUnseenIsCreated(t *testing.T) {
	for name, kind := range map[string]faultkv.Kind{"landed": faultkv.UndeterminedLanded, "lost": faultkv.UndeterminedLost} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.unsure(kind, 1)
			created, err := b.CreateSource(t.Context(), logged("a"))
			require.NoError(t, err)
			stored, err := b.Source(t.Context(), hook.DefaultTenant, "a")
			require.NoError(t, err)
			require.Equal(t, stored, created)
			_, err = b.CreateSource(t.Context(), logged("a"))
			require.ErrorIs(t, err, ErrSourceExists, "of another call")
		})
	}
}

func TestASourceWhoseFateStaysUnknownIsAnError(t *testing.T) {
	b := newBench(t, nil)
	b.unsure(faultkv.UndeterminedLost, 100)
	_, err := b.CreateSource(t.Context(), logged("a"))
	require.ErrorIs(t, err, kv.ErrUndetermined)
}

func TestASourceWhoseRemovalLandedUnseenIsRemoved(t *testing.T) {
	for name, kind := range map[string]faultkv.Kind{"landed": faultkv.UndeterminedLanded, "lost": faultkv.UndeterminedLost} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			src := b.source("a", 1)
			require.NoError(t, b.CloseSource(t.Context(), src.Tenant, src.Name))
			b.unsure(kind, 1)
			require.NoError(t, b.RemoveSource(t.Context(), src.Tenant, src.Name, src.Incarnation))
			_, err := b.Source(t.Context(), src.Tenant, src.Name)
			require.ErrorIs(t, err, ErrSourceNotFound)
			require.ErrorIs(t, b.RemoveSource(t.Context(), src.Tenant, src.Name, src.Incarnation), ErrSourceNotFound)
		})
	}
}

func TestAllSourcesOfAnOwnerAreListedOrNone(t *testing.T) {
	b := newBench(t, nil)
	const n = pageSize + 10
	_, err := b.kv.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error {
		for i := range n {
			if err := putSource(tx, logged(fmt.Sprintf("s%05d", i)), 0); err != nil {
				return err
			}
		}
		other := logged("s00000")
		other.Tenant = "acme"
		return putSource(tx, other, 0)
	})
	require.NoError(t, err)
	all, err := b.ListSources(t.Context(), hook.DefaultTenant, n)
	require.NoError(t, err)
	require.Len(t, all, n)
	require.Equal(t, "s00000", all[0].Name)
	require.Equal(t, fmt.Sprintf("s%05d", n-1), all[n-1].Name)

	_, err = b.ListSources(t.Context(), hook.DefaultTenant, n-1)
	require.ErrorIs(t, err, ErrTooManySources)
}
