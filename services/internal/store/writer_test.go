package store

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

func TestL09_AHundredEqualHooksMakeOne(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("github", 2)
	ids := make(chan hook.ID, 100)
	var all sync.WaitGroup
	for range 10 {
		w := b.NewWriter(random16())
		all.Add(1)
		go func() {
			defer all.Done()
			batch := make([]Incoming, 10)
			for i := range batch {
				batch[i] = incoming(src, "acme", "delivery-1", []byte("x"))
			}
			accepted, _, err := w.Commit(context.Background(), b.Partition("acme", 0), batch)
			if err != nil {
				t.Error(err)
				return
			}
			for i, a := range accepted {
				switch {
				case a.Err != nil:
					t.Error(a.Err)
				case a.Duplicate != nil:
					ids <- *a.Duplicate
				default:
					ids <- batch[i].Hook.ID
				}
			}
		}()
	}
	all.Wait()
	close(ids)
	first := <-ids
	n := 1
	for id := range ids {
		require.Equal(t, first, id, "everybody is told the first hook's id")
		n++
	}
	require.Equal(t, 100, n)
	require.Len(t, b.keys(famHook), 1)
	require.EqualValues(t, 2, b.outstanding())
}

func TestAnExpiredDedupeKeyIsTakenAnew(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("github", 1)
	w := b.NewWriter(random16())
	in := incoming(src, "acme", "k", nil)
	in.DedupeTTL = 0
	b.commit(w, in)
	accepted, _ := b.commit(w, incoming(src, "acme", "k", nil))
	require.Nil(t, accepted[0].Duplicate)
}

func TestL11_ACommitOfUnknownFateIsFoundOut(t *testing.T) {
	for name, landed := range map[string]bool{"landed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			kind := faultkv.UndeterminedLost
			if landed {
				kind = faultkv.UndeterminedLanded
			}
			b := newBench(t, nil)
			src := b.source("s", 1)
			b.port = faultkv.New(b.kv.(*faultkv.Store).Unwrap(), faultkv.Script(faultkv.Update, faultkv.Fault{Kind: kind}))
			b.kv = b.port
			w := b.recorded()
			accepted, groups, err := w.Commit(t.Context(), b.Partition("acme", 0), []Incoming{incoming(src, "acme", "", []byte("x"))})
			if landed {
				require.NoError(t, err)
				require.NoError(t, accepted[0].Err)
				require.Len(t, groups, 1)
				require.EqualValues(t, 1, b.outstanding())
				return
			}
			require.ErrorIs(t, err, kv.ErrUnavailable)
			require.NotErrorIs(t, err, kv.ErrUndetermined)
			require.Empty(t, groups)
			require.Zero(t, b.outstanding())
			b.commit(w, incoming(src, "acme", "", nil))
			require.EqualValues(t, 1, b.outstanding(), "the counters go on from what has landed")
		})
	}
}

func TestL11_AFateThatCannotBeFoundOutYetIsNamedLater(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update,
		faultkv.Fault{Kind: faultkv.UndeterminedLanded}, faultkv.Fault{Kind: faultkv.Unavailable}))
	w := b.recorded()
	partition := b.Partition("acme", 0)
	_, groups, err := w.Commit(t.Context(), partition, []Incoming{incoming(src, "acme", "evt_1", nil)})
	require.ErrorIs(t, err, kv.ErrUndetermined)
	require.Empty(t, groups)
	groups, err = w.Resolve(t.Context(), partition)
	require.NoError(t, err)
	require.Len(t, groups, 1, "rows that landed unseen are named")
	accepted, _ := b.commit(w, incoming(src, "acme", "evt_1", nil))
	require.Equal(t, groups[0].Hooks[0], *accepted[0].Duplicate, "the provider's retry finds the first")
}

func TestAClosedOrChangedSourceTakesNothing(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	w := b.NewWriter(random16())
	other := incoming(src, "acme", "", nil)
	other.Hook.Incarnation++
	accepted, _ := b.commit(w, incoming(src, "acme", "", nil), other)
	require.NoError(t, accepted[0].Err)
	require.ErrorIs(t, accepted[1].Err, ErrSourceChanged)
	require.NoError(t, b.CloseSource(t.Context(), src.Tenant, src.Name))
	accepted, groups := b.commit(w, incoming(src, "acme", "", nil))
	require.ErrorIs(t, accepted[0].Err, ErrSourceChanged)
	require.Empty(t, groups)
	require.ErrorIs(t, b.RemoveSource(t.Context(), src.Tenant, src.Name, src.Incarnation+1), ErrSourceChanged)
	require.NoError(t, b.RemoveSource(t.Context(), src.Tenant, src.Name, src.Incarnation))
	again := b.source("s", 1)
	require.NotEqual(t, src.Incarnation, again.Incarnation)
}

func TestI12_ALargeBodyComesBackAndGoesWhole(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	body := bytes.Repeat([]byte("0123456789abcdef"), 3*chunkSize/16)
	body = append(body, 'x')
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", body))
	rows := b.rows(groups)
	fetched, err := b.Fetch(t.Context(), []hook.Row{rows[0].Row})
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, fetched[0].Hook.Body))
	require.Len(t, b.keys(famBody), 3)
	b.settle(b.lead(), settled(rows[0], hook.Complete))
	require.Empty(t, b.keys(famBody))
	require.Empty(t, b.keys(famHook))
}

func TestL01_NoErrorOfTheStoreLooksLikeSuccess(t *testing.T) {
	for _, kind := range []faultkv.Kind{faultkv.Unavailable, faultkv.Conflict, faultkv.Bound} {
		b := newBench(t, nil)
		src := b.source("s", 1)
		b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
			if c.Op == faultkv.Update {
				return faultkv.Fault{Kind: kind}
			}
			return faultkv.Fault{}
		})
		_, groups, err := b.NewWriter(random16()).Commit(t.Context(), b.Partition("acme", 0), []Incoming{incoming(src, "acme", "", nil)})
		require.Error(t, err, "kind %v", kind)
		require.Empty(t, groups)
		b.kv = b.port
		require.Zero(t, b.outstanding())
	}
}

// TestI2_APartOfUnknownFateCountsOnce has one part of a batch conflict, land unseen and stay unknown: the part behind it
// must not count from where that one began.
func TestI2_APartOfUnknownFateCountsOnce(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	w := b.recorded()
	b.commit(w, incoming(src, "acme", "", nil))
	b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update, faultkv.Fault{Kind: faultkv.Conflict},
		faultkv.Fault{Kind: faultkv.UndeterminedLanded}, faultkv.Fault{Kind: faultkv.Unavailable}))
	partition := b.Partition("acme", 0)
	_, groups, _ := w.Commit(t.Context(), partition, []Incoming{incoming(src, "acme", "k", nil), incoming(src, "acme", "", nil)})
	late, err := w.Resolve(t.Context(), partition)
	require.NoError(t, err)
	stored := len(b.keys(famDue))
	require.EqualValues(t, stored, b.outstanding())
	named := 1 // the first commit's
	for _, g := range append(groups, late...) {
		named += len(g.Hooks)
	}
	require.Equal(t, stored, named, "every row that is stored is named once")
}

func TestADeletionThatDiedLeavesItsSourceOpenAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		src := b.source("s", 1)
		w := b.NewWriter(random16())
		require.NoError(t, b.CloseSource(t.Context(), src.Tenant, src.Name))
		time.Sleep(50 * time.Second)
		accepted, _ := b.commit(w, incoming(src, "acme", "", nil))
		require.ErrorIs(t, accepted[0].Err, ErrSourceChanged)
		time.Sleep(7 * time.Second)
		err := b.RemoveSource(t.Context(), src.Tenant, src.Name, src.Incarnation)
		require.ErrorIs(t, err, ErrSourceChanged, "it could commit when hooks are taken again")
		time.Sleep(4 * time.Second)
		accepted, _ = b.commit(w, incoming(src, "acme", "", nil))
		require.NoError(t, accepted[0].Err)
	})
}
