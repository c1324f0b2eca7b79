package store

import (
	"context"
	"sort"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

func TestI4_ADeposedLeaderSettlesNothing(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil))
	rows := b.rows(groups)
	old := b.lead()
	next := b.lead()
	require.Greater(t, next.Epoch(), old.Epoch())
	_, err := old.Settle(t.Context(), SlotOf(rows[0].Partition, "acme"), []hook.Settlement{settled(rows[0], hook.Complete)})
	require.ErrorIs(t, err, ErrDeposed)
	require.EqualValues(t, 1, b.outstanding())
	fetched, err := b.Fetch(t.Context(), []hook.Row{rows[0].Row})
	require.NoError(t, err)
	require.Equal(t, next.Epoch(), fetched[0].Epoch, "runners see the later epoch with the hook")
	require.ErrorIs(t, old.PutRunner(t.Context(), Runner{ID: random16()}), ErrDeposed)
	b.settle(next, settled(rows[0], hook.Complete))
	require.Zero(t, b.outstanding())
}

// TestI4_ATransactionBegunBeforeTheBumpFails stops a settle between its reads and its commit while a new leader bumps.
func TestI4_ATransactionBegunBeforeTheBumpFails(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil))
	rows := b.rows(groups)
	old := b.lead()
	bumped := false
	b.port.SetHooks(faultkv.Hooks{Before: func(context.Context, faultkv.Commit) error {
		if !bumped {
			bumped = true
			b.lead()
		}
		return nil
	}})
	_, err := old.Settle(t.Context(), SlotOf(rows[0].Partition, "acme"), []hook.Settlement{settled(rows[0], hook.Complete)})
	require.ErrorIs(t, err, ErrDeposed)
	require.EqualValues(t, 1, b.outstanding())
}

func TestL08_ASettleOfUnknownFateIsRepeatedWithoutCountingTwice(t *testing.T) {
	for name, kind := range map[string]faultkv.Kind{"landed": faultkv.UndeterminedLanded, "lost": faultkv.UndeterminedLost} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			src := b.source("s", 1)
			_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil), incoming(src, "acme", "", nil))
			rows := b.rows(groups)
			leader := b.lead()
			b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update,
				faultkv.Fault{Kind: kind}, faultkv.Fault{Kind: faultkv.Unavailable}))
			slot := SlotOf(rows[0].Partition, "acme")
			batch := []hook.Settlement{settled(rows[0], hook.Complete)}
			_, err := leader.Settle(t.Context(), slot, batch)
			require.Error(t, err)
			_, err = leader.Settle(t.Context(), slot, batch)
			require.NoError(t, err)
			require.EqualValues(t, 1, b.outstanding())
			b.settle(leader, settled(rows[1], hook.Complete))
			require.Zero(t, b.outstanding())
		})
	}
}

func TestL08_ARetryThatDidNotLandIsNotTakenForLanded(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil))
	row := b.rows(groups)[0]
	leader := b.lead()
	b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update, faultkv.Fault{Kind: faultkv.UndeterminedLost}))
	again := settled(row, hook.Again)
	again.Verdict.Due = row.Due.Add(60_000_000_000)
	slot := SlotOf(row.Partition, "acme")
	_, err := leader.Settle(t.Context(), slot, []hook.Settlement{again})
	require.Error(t, err)
	require.Equal(t, row.Due, b.rows(groups)[0].Due)
	_, err = leader.Settle(t.Context(), slot, []hook.Settlement{again})
	require.NoError(t, err)
	require.Equal(t, again.Verdict.Due, b.rows(groups)[0].Due)
}

func TestAHookGoesWithItsLastDelivery(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 3)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", []byte("x")))
	rows := b.rows(groups)
	require.Len(t, rows, 3)
	leader := b.lead()
	b.settle(leader, settled(rows[0], hook.Complete))
	require.Len(t, b.keys(famHook), 1)
	b.settle(leader, settled(rows[1], hook.Bury), settled(rows[2], hook.Complete))
	require.Len(t, b.keys(famHook), 1, "a dead letter keeps its hook")
	require.Len(t, b.keys(famObligation), 1)
	require.Zero(t, b.outstanding())
	one := b.source("one", 2)
	_, groups = b.commit(b.NewWriter(random16()), incoming(one, "acme", "", []byte("x")))
	rows = b.rows(groups)
	b.settle(leader, settled(rows[0], hook.Complete), settled(rows[1], hook.Complete))
	require.Len(t, b.keys(famObligation), 1, "both deliveries ended in one settle")
	require.Len(t, b.keys(famHook), 1)
}

func TestL04_ARetryAndItsRowAreOneTransaction(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil))
	rows := b.rows(groups)
	s := settled(rows[0], hook.Again)
	s.Verdict.Due, s.Verdict.State.Attempts = rows[0].Due.Add(60_000_000_000), 1
	b.settle(b.lead(), s)
	rows = b.rows(groups)
	require.Len(t, rows, 1)
	require.Equal(t, s.Verdict.Due, rows[0].Due)
	require.EqualValues(t, 1, rows[0].Attempts)
	require.EqualValues(t, 1, b.outstanding())
}

func TestOfTwoWhoTakeTheLeaseOneGetsIt(t *testing.T) {
	b := newBench(t, nil)
	seen, err := b.LeaderLease(t.Context())
	require.NoError(t, err)
	first, err := b.TakeLease(t.Context(), seen, random16())
	require.NoError(t, err)
	_, err = b.TakeLease(t.Context(), seen, random16())
	require.ErrorIs(t, err, ErrLeaseChanged)
	renewed, err := b.RenewLease(t.Context(), first)
	require.NoError(t, err)
	_, err = b.RenewLease(t.Context(), Lease{Holder: first.Holder, Epoch: 9})
	require.ErrorIs(t, err, ErrLeaseChanged)
	require.NoError(t, b.ReleaseLease(t.Context(), renewed))
	free, err := b.LeaderLease(t.Context())
	require.NoError(t, err)
	require.Zero(t, free.Holder)
	require.Equal(t, first.Epoch, free.Epoch, "epochs never go back")
}

func TestARenewalThatLandedUnseenCanBeRepeated(t *testing.T) {
	b := newBench(t, nil)
	lease, err := b.TakeLease(t.Context(), Lease{}, random16())
	require.NoError(t, err)
	b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update, faultkv.Fault{Kind: faultkv.UndeterminedLanded}))
	_, err = b.RenewLease(t.Context(), lease)
	require.ErrorIs(t, err, kv.ErrUndetermined)
	_, err = b.RenewLease(t.Context(), lease)
	require.NoError(t, err)
}

func TestDeadLettersAreListedNewestFirstPageByPage(t *testing.T) {
	b := newBench(t, nil)
	leader := b.lead()
	w := b.NewWriter(random16())
	sources := []string{"one", "two"}
	for _, name := range sources {
		b.source(name, 1)
	}
	for i := range 40 {
		src, err := b.Source(t.Context(), hook.DefaultTenant, sources[i%2])
		require.NoError(t, err)
		_, groups := b.commit(w, incoming(src, []string{"acme", "beta", "gamma"}[i%3], "", []byte("body")))
		for _, d := range b.rows(groups) {
			b.settle(leader, settled(d, hook.Bury))
		}
	}
	for _, f := range []DeadFilter{{}, {Tenant: "beta"}, {SourceID: "two"}, {Tenant: "acme", SourceID: "one"}, {Class: hook.ErrorTransient}} {
		f.Limit = 1000
		whole, err := b.DeadLetters(t.Context(), f)
		require.NoError(t, err)
		require.EqualValues(t, len(whole.Entries), whole.Total)
		require.True(t, sort.SliceIsSorted(whole.Entries, func(i, j int) bool { return whole.Entries[i].At > whole.Entries[j].At }))
		var paged []DeadEntry
		f.Limit = 3
		for more := true; more; {
			page, err := b.DeadLetters(t.Context(), f)
			require.NoError(t, err)
			paged = append(paged, page.Entries...)
			f.Cursor, more = page.Next, page.Next != ""
		}
		require.Equal(t, whole.Entries, paged)
	}
	all, err := b.DeadLetters(t.Context(), DeadFilter{Limit: 3})
	require.NoError(t, err)
	require.EqualValues(t, 40, all.Total, "L45: counts are kept, not counted")
	require.EqualValues(t, 4, all.Entries[0].BodySize)
	_, err = b.DeadLetters(t.Context(), DeadFilter{Limit: 3, Cursor: "!"})
	require.ErrorIs(t, err, ErrBadCursor)
	_, err = b.DeadLetters(t.Context(), DeadFilter{Limit: 3, Cursor: "AAAAAAAAAAAAAAAAAAAA"})
	require.NoError(t, err, "a cursor of another place is only a place")
}

func TestExpiredDedupeKeysAreSweptAndTakenOnesStay(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	w := b.NewWriter(random16())
	b.commit(w, incoming(src, "acme", "old", nil), incoming(src, "acme", "kept", nil))
	now, err := b.Now(t.Context())
	require.NoError(t, err)
	in := incoming(src, "acme", "long", nil)
	in.DedupeTTL *= 100
	b.commit(w, in)
	require.Len(t, b.keys(famDedupe), 3)
	later := now.Add(3 * 3600 * 1e9)
	more, err := b.SweepExpired(t.Context(), b.Partition("acme", 0), later)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, b.keys(famDedupe), 1)
	require.Len(t, b.keys(famExpiry), 1)
}

func TestTheLogOfEventsHoldsWhatSettlesBrought(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.NewWriter(random16()), incoming(src, "acme", "", nil), incoming(src, "acme", "", nil))
	rows := b.rows(groups)
	leader := b.lead()
	b.settle(leader, settled(rows[0], hook.Complete), settled(rows[1], hook.Bury))
	log, err := b.Events(t.Context(), rows[0].Partition, 0, 10)
	require.NoError(t, err)
	require.Len(t, log, 1)
	var kinds []string
	for _, e := range log[0].Events {
		kinds = append(kinds, e.Kind.String())
	}
	require.Equal(t, []string{"accepted", "leased", "delivered", "accepted", "leased", "dead"}, kinds)
	require.NoError(t, b.DropEvents(t.Context(), log[0].At))
	kept, err := b.Events(t.Context(), rows[0].Partition, 0, 10)
	require.NoError(t, err)
	require.Len(t, kept, 1, "the hour that is not over is kept")
	require.NoError(t, b.DropEvents(t.Context(), log[0].At.Add(3600*1e9)))
	kept, err = b.Events(t.Context(), rows[0].Partition, 0, 10)
	require.NoError(t, err)
	require.Empty(t, kept)
	require.Empty(t, b.keys(famHistory))
}

func TestAGoneWritersCountersAreFolded(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 2)
	gone, other := b.NewWriter(random16()), b.NewWriter(random16())
	require.NoError(t, gone.Beat(t.Context()))
	_, groups := b.commit(gone, incoming(src, "acme", "", nil), incoming(src, "acme", "", nil))
	b.commit(other, incoming(src, "acme", "", nil))
	leader := b.lead()
	rows := b.rows(groups)
	require.Len(t, rows, 6)
	b.settle(leader, settled(rows[0], hook.Complete))
	require.NoError(t, leader.Fold(t.Context(), gone.ID()))
	require.EqualValues(t, 5, b.outstanding(), "what the writer committed still counts")
	require.Len(t, b.keys(famCounter), 4)
	b.settle(leader, settled(rows[1], hook.Complete), settled(rows[2], hook.Complete))
	require.EqualValues(t, 3, b.outstanding())
	records, err := b.Writers(t.Context())
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, other.ID(), records[0].ID)
	for _, d := range rows[3:] {
		b.settle(leader, settled(d, hook.Complete))
	}
	require.NoError(t, leader.Fold(t.Context(), other.ID()))
	require.Zero(t, b.outstanding())
	require.Empty(t, b.keys(famCounter), "counters with nothing outstanding go")
	require.NoError(t, leader.Fold(t.Context(), other.ID()), "folding again changes nothing")
	old := leader
	b.lead()
	_, groups = b.commit(gone, incoming(src, "acme", "", nil))
	require.ErrorIs(t, old.Fold(t.Context(), gone.ID()), ErrDeposed)
	require.Len(t, b.rows(groups), 2)
}

func TestManyRunnersThatLeaveAtOnceAreAllForgotten(t *testing.T) {
	b := newBench(t, nil)
	leader := b.lead()
	ids := make([]hook.RunID, 64)
	for i := range ids {
		ids[i] = random16()
		require.NoError(t, leader.PutRunner(t.Context(), Runner{ID: ids[i]}))
	}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if err := leader.RemoveRunner(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	left, err := b.Runners(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}
