package store

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

var laneSink = hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Index: 1, Type: "http"}

// putMembers writes members of lanes as commits do, the i-th at start i+1 and due then.
func (b *bench) putMembers(partition uint8, lanes ...string) (all []hook.Delivery) {
	for at := 0; at < len(lanes); at += 4096 {
		_, err := b.kv.Update(b.t.Context(), kv.UpdateOptions{}, func(t kv.Txn) error {
			w := &puts{txn: t}
			for i := at; i < min(at+4096, len(lanes)); i++ {
				start := hook.Timestamp(i + 1)
				d := hook.Delivery{Row: hook.Row{
					Partition: partition, Key: laneSink, Hook: hook.ID{0: byte(i >> 8), 15: byte(i)}, Due: start, Version: start,
					Ordered: true, Lane: lanes[i], Place: hook.Place{Start: start, Index: uint32(i % 3)},
				}}
				d.Size, d.Sinks = uint32(i+1), 1
				w.put(rowKey(&d.Row), encodeRow(&d.Row, d.Version, &d.State))
				all = append(all, d)
			}
			return w.err
		})
		require.NoError(b.t, err)
	}
	return all
}

// modelPage is what a page of lanes without bounds holds, told from the members alone.
func modelPage(all []hook.Delivery, q LaneScan) (page LanePage) {
	lanes := make(map[string][]hook.Delivery)
	for _, d := range all {
		if d.Lane >= q.From {
			lanes[d.Lane] = append(lanes[d.Lane], d)
		}
	}
	names := make([]string, 0, len(lanes))
	for name := range lanes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(page.Lanes) == q.Lanes {
			page.More, page.Next = true, page.Lanes[q.Lanes-1].Lane+"\x00"
			break
		}
		rows := lanes[name]
		slices.SortFunc(rows, func(x, y hook.Delivery) int {
			if x.Place.Less(y.Place) {
				return -1
			}
			return 1
		})
		n := min(len(rows), q.Members)
		page.Lanes = append(page.Lanes, hook.LaneRows{Lane: name, Rows: rows[:n], More: n < len(rows)})
	}
	return page
}

func TestLanesArePagedAsTheyStand(t *testing.T) {
	names := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "a", "a\x00", "a\x00b", "ab", "b", "\xff", "\xff\xff", strings.Repeat("k", 200)}
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, nil)
		var lanes []string
		for range rapid.IntRange(0, 6).Draw(rt, "lanes") {
			lane := rapid.SampledFrom(names).Draw(rt, "lane")
			for range rapid.IntRange(1, 12).Draw(rt, "members") {
				lanes = append(lanes, lane)
			}
		}
		all := b.putMembers(3, lanes...)
		b.putMembers(4, "other partition")
		q := LaneScan{
			Partition: 3, Key: laneSink, From: rapid.SampledFrom(names).Draw(rt, "from"),
			Lanes: rapid.IntRange(1, 7).Draw(rt, "wanted"), Members: rapid.IntRange(1, 5).Draw(rt, "rows"),
		}
		for more := true; more; {
			want := modelPage(all, q)
			got, err := b.ScanLanes(t.Context(), q)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
			q.From, more = got.Next, got.More
		}
	})
}

func TestALaneIsReadFromAPlaceOn(t *testing.T) {
	b := newBench(t, nil)
	var lanes []string
	for range 10 {
		lanes = append(lanes, "a", "a\x00", "")
	}
	all := b.putMembers(3, lanes...)
	rapid.Check(t, func(rt *rapid.T) {
		reads := make([]hook.LaneFrom, rapid.IntRange(0, 4).Draw(rt, "reads"))
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		want := make([]hook.LaneRows, len(reads))
		for i := range reads {
			q := hook.LaneFrom{
				Partition: 3, Key: laneSink, Lane: rapid.SampledFrom([]string{"", "a", "a\x00", "none"}).Draw(rt, "lane"),
				From: all[rapid.IntRange(0, len(all)-1).Draw(rt, "from")].Place,
			}
			reads[i], want[i].Lane = q, q.Lane
			for _, d := range all {
				if d.Lane == q.Lane && !d.Place.Less(q.From) {
					want[i].Rows = append(want[i].Rows, d)
				}
			}
			want[i].More = len(want[i].Rows) > limit
			want[i].Rows = want[i].Rows[:min(len(want[i].Rows), limit)]
		}
		got, err := b.ReadLanes(t.Context(), reads, limit)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	})
}

// TestI11_AHugeLaneCostsAPageOfLanesABoundedScan counts what is asked of the store.
func TestI11_AHugeLaneCostsAPageOfLanesABoundedScan(t *testing.T) {
	b := newBench(t, nil)
	var lanes []string
	for i := range 24 {
		for range 3 * lanePage {
			lanes = append(lanes, string(rune('a'+i)))
		}
	}
	all := b.putMembers(3, lanes...)
	scans := 0
	b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
		if c.Op == faultkv.Scan {
			scans++
		}
		return faultkv.Fault{}
	})
	q := LaneScan{Partition: 3, Key: laneSink, Lanes: 1000, Members: 2}
	want := modelPage(all, q).Lanes
	var got []hook.LaneRows
	for more := true; more; {
		scans = 0
		page, err := b.ScanLanes(t.Context(), q)
		require.NoError(t, err)
		require.LessOrEqual(t, scans, maxLaneScans+1)
		require.NotEmpty(t, page.Lanes, "each page gets on")
		got = append(got, page.Lanes...)
		q.From, more = page.Next, page.More
	}
	require.Empty(t, cmp.Diff(want, got))

	long, err := b.ScanLanes(t.Context(), LaneScan{Partition: 3, Key: laneSink, Lanes: 24, Members: 2*lanePage + 7})
	require.NoError(t, err)
	require.True(t, long.More)
	for i, lane := range long.Lanes[:len(long.Lanes)-1] {
		require.Len(t, lane.Rows, 2*lanePage+7)
		require.True(t, lane.More, i)
	}
	require.True(t, long.Lanes[len(long.Lanes)-1].More, "what is behind the last scan is not forgotten")
}

func TestL01_ALaneThatCannotBeReadIsNotAnEmptyOne(t *testing.T) {
	b := newBench(t, nil)
	b.putMembers(3, "a", "a", "a", "b", "b", "b", "c")
	q := LaneScan{Partition: 3, Key: laneSink, Lanes: 2, Members: 1}
	for n := range 3 {
		b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
			if c.Op == faultkv.Scan && c.N == n {
				return faultkv.Fault{Kind: faultkv.Unavailable}
			}
			return faultkv.Fault{}
		})
		page, err := b.ScanLanes(t.Context(), q)
		if n == 2 {
			require.NoError(t, err, "the page took two scans")
			require.Len(t, page.Lanes, 2)
			continue
		}
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.Empty(t, page)
	}
	b.port.SetDown(true)
	b.kv = b.port
	_, err := b.ReadLanes(t.Context(), []hook.LaneFrom{{Partition: 3, Key: laneSink, Lane: "a"}}, 1)
	require.ErrorIs(t, err, kv.ErrUnavailable)
}

// inLane binds an input's sinks from the given one on to a lane.
func inLane(in Incoming, sink int, lane string) Incoming {
	in.Bindings = slices.Clone(in.Bindings)
	for i := sink; i < len(in.Bindings); i++ {
		in.Bindings[i].Ordered, in.Bindings[i].Lane = true, lane
	}
	return in
}

func again(d hook.Delivery, seconds int) hook.Settlement {
	s := settled(d, hook.Again)
	s.Verdict.Due = d.Due.Add(1e9)
	for range seconds - 1 {
		s.Verdict.Due = s.Verdict.Due.Add(1e9)
	}
	s.Verdict.State.Attempts++
	return s
}

func TestAMemberThatFailsStaysInPlaceAndIsWokenOnce(t *testing.T) {
	b := newBench(t, nil)
	src, leader := b.source("s", 1), b.lead()
	_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", []byte("1")), 0, "k"), inLane(incoming(src, "acme", "", nil), 0, "k"))
	g := groups[0]
	members := b.rows(groups)
	require.Len(t, members, 2)
	require.Empty(t, b.due(g.Partition, g.Key), "a member that was not attempted has no wake-up")
	for n := range uint32(2) {
		head := b.rows(groups)[0]
		s := again(head, 60)
		b.settle(leader, s)
		got := b.rows(groups)
		require.Len(t, got, 2)
		require.Equal(t, head.Place, got[0].Place)
		require.Equal(t, s.Verdict.Due, got[0].Due)
		require.Greater(t, got[0].Version, head.Version)
		require.Equal(t, n+1, got[0].Attempts)
		require.Equal(t, members[1], got[1], "the member behind it is as it was")
		wake := got[0].Row
		wake.Version = 0
		require.Equal(t, []hook.Delivery{{Row: wake}}, b.due(g.Partition, g.Key))
		found, err := b.Rows(t.Context(), []hook.Row{head.Row})
		require.NoError(t, err)
		require.Equal(t, &got[0], found[0].Delivery, "an older version of the row names the row")
		fetched, err := b.Fetch(t.Context(), []hook.Row{head.Row, got[0].Row})
		require.NoError(t, err)
		require.Nil(t, fetched[0].Delivery, "a runner is given its version or nothing")
		require.Equal(t, &got[0], fetched[1].Delivery)
	}
	b.settle(leader, settled(b.rows(groups)[0], hook.Complete))
	require.Empty(t, b.due(g.Partition, g.Key))
	require.Equal(t, members[1:], b.rows(groups))
	require.Len(t, b.keys(famHook), 1)
	b.settle(leader, settled(members[1], hook.Discard))
	require.Empty(t, b.keys(famLane))
	require.Zero(t, b.outstanding())
}

// TestAMemberThatWasNeverAttemptedLeavesNoTombstoneAmongDueRows: only what was written is deleted.
func TestAMemberThatWasNeverAttemptedLeavesNoTombstoneAmongDueRows(t *testing.T) {
	b := newBench(t, nil)
	src, leader := b.source("s", 1), b.lead()
	_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", nil), 0, "k"))
	member := b.rows(groups)[0]
	written := 0
	b.port.SetHooks(faultkv.Hooks{Before: func(_ context.Context, c faultkv.Commit) error {
		for _, k := range c.Keys {
			require.False(t, bytes.HasPrefix(k, dueFamily(member.Partition, member.Key)), "%x", k)
		}
		written += len(c.Keys)
		return nil
	}})
	b.settle(leader, settled(member, hook.Complete))
	require.NotZero(t, written)
}

func TestAMembersDeadLetterKeepsItsLane(t *testing.T) {
	for name, lane := range map[string]string{"key": "cus_1", "keyless": ""} {
		b := newBench(t, nil)
		src, leader := b.source("s", 1), b.lead()
		_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", []byte("1")), 0, lane))
		b.settle(leader, again(b.rows(groups)[0], 1))
		member := b.rows(groups)[0]
		b.settle(leader, settled(member, hook.Bury))
		require.Empty(t, b.keys(famLane), name)
		require.Empty(t, b.keys(famDue), name)
		require.Len(t, b.keys(famHook), 1, name)
		listed, err := b.DeadLetters(t.Context(), DeadFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, listed.Entries, 1)
		require.True(t, listed.Entries[0].Ordered, name)
		require.Equal(t, lane, listed.Entries[0].Lane, name)
		require.Zero(t, listed.Entries[0].Place, "a replay takes a new place")
		known, err := b.LookupHook(t.Context(), "acme", member.Hook)
		require.NoError(t, err)
		require.Equal(t, hook.Bury, known.Deliveries[0].Kind)
	}
}

func TestAHookMayBeOwedToALaneAndToASinkWithoutOrder(t *testing.T) {
	b := newBench(t, nil)
	src, leader := b.source("s", 2), b.lead()
	_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", []byte("1")), 1, "k"))
	require.Len(t, groups, 2)
	rows := b.rows(groups)
	require.Len(t, rows, 2)
	require.False(t, rows[0].Ordered)
	require.True(t, rows[1].Ordered)
	b.settle(leader, again(rows[1], 5), settled(rows[0], hook.Complete))
	require.Len(t, b.keys(famHook), 1)
	require.Len(t, b.keys(famObligation), 1)
	b.settle(leader, settled(b.rows(groups[1:])[0], hook.Complete))
	for _, family := range []byte{famDue, famLane, famHook, famObligation} {
		require.Empty(t, b.keys(family), family)
	}
}

func TestL08_AMemberWhoseSettleIsOfUnknownFateIsSettledOnce(t *testing.T) {
	for name, kind := range map[string]faultkv.Kind{"landed": faultkv.UndeterminedLanded, "lost": faultkv.UndeterminedLost} {
		for end, settle := range map[string]func(hook.Delivery) hook.Settlement{
			"again": func(d hook.Delivery) hook.Settlement { return again(d, 9) },
			"done":  func(d hook.Delivery) hook.Settlement { return settled(d, hook.Complete) },
		} {
			b := newBench(t, nil)
			src, leader := b.source("s", 1), b.lead()
			_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", nil), 0, "k"))
			b.settle(leader, again(b.rows(groups)[0], 1))
			b.kv = faultkv.New(b.port.Unwrap(), faultkv.Script(faultkv.Update,
				faultkv.Fault{Kind: kind}, faultkv.Fault{Kind: faultkv.Unavailable}))
			batch := []hook.Settlement{settle(b.rows(groups)[0])}
			slot := SlotOf(groups[0].Partition, "acme")
			_, err := leader.Settle(context.Background(), slot, batch)
			require.Error(t, err, name)
			_, err = leader.Settle(context.Background(), slot, batch)
			require.NoError(t, err, name)
			left := b.rows(groups)
			require.Len(t, b.due(groups[0].Partition, groups[0].Key), len(left), "%s, %s", name, end)
			require.EqualValues(t, len(left), b.outstanding(), "%s, %s", name, end)
			if end == "again" {
				require.Equal(t, batch[0].Verdict.Due, left[0].Due, name)
			}
		}
	}
}

func TestANameOfAnotherHooksPlaceFindsNothing(t *testing.T) {
	b := newBench(t, nil)
	src, leader := b.source("s", 1), b.lead()
	_, groups := b.commit(b.recorded(), inLane(incoming(src, "acme", "", nil), 0, "k"))
	b.settle(leader, again(b.rows(groups)[0], 1))
	member := b.rows(groups)[0].Row
	other := member
	other.Hook[0]++
	wake := hook.Row{Partition: member.Partition, Key: member.Key, Hook: member.Hook, Due: member.Due}
	found, err := b.Reread(t.Context(), []hook.Row{member, other, wake})
	require.NoError(t, err)
	require.NotNil(t, found[0].Delivery)
	require.True(t, found[0].Hook)
	require.Equal(t, Found{}, found[1])
	require.Equal(t, Found{Hook: true}, found[2], "a wake-up is no row")
	fetched, err := b.Fetch(t.Context(), []hook.Row{member, other, wake})
	require.NoError(t, err)
	require.NotNil(t, fetched[0].Delivery)
	require.Nil(t, fetched[1].Delivery)
	require.Nil(t, fetched[2].Delivery)
}

func TestABatchAcrossAChangeOfOrderIsNamedApart(t *testing.T) {
	b := newBench(t, nil)
	src := b.source("s", 1)
	_, groups := b.commit(b.recorded(),
		incoming(src, "acme", "", nil), inLane(incoming(src, "acme", "", nil), 0, "k"), incoming(src, "acme", "", nil))
	require.Len(t, groups, 2)
	require.False(t, groups[0].Ordered)
	require.Len(t, groups[0].Hooks, 2)
	require.Empty(t, groups[0].Lanes)
	require.Equal(t, []string{"k"}, groups[1].Lanes)
	require.Equal(t, []uint32{1}, groups[1].Members)
	require.Len(t, groups[1].Hooks, 1)
}

// TestTheCountersSayWhetherAKeyHasMembers follows a sink that was ordered while one writer lived and was not while another
// did: whose rows were settled, the counters cannot tell.
func TestTheCountersSayWhetherAKeyHasMembers(t *testing.T) {
	b := newBench(t, nil)
	src, leader := b.source("s", 1), b.lead()
	gone, alive := b.recorded(), b.recorded()
	ordered := func() (some, all bool) {
		all = true
		for p := range b.partitions {
			require.NoError(t, b.Outstanding(t.Context(), uint8(p), func(w Work) { some, all = some || w.Ordered, all && w.Ordered }))
		}
		return some, all
	}
	_, plain := b.commit(alive, incoming(src, "acme", "", nil), incoming(src, "acme", "", nil))
	some, _ := ordered()
	require.False(t, some)
	b.commit(gone, inLane(incoming(src, "acme", "", nil), 0, "k"))
	_, all := ordered()
	require.True(t, all)
	b.settle(leader, settled(b.rows(plain)[0], hook.Complete))
	require.NoError(t, leader.Fold(t.Context(), gone.id))
	_, all = ordered()
	require.True(t, all, "the member is still there")
	require.EqualValues(t, 2, b.outstanding())
	b.settle(leader, settled(b.rows(plain)[0], hook.Complete), settled(b.members(plain[0].Partition, plain[0].Key)[0], hook.Complete))
	require.NoError(t, leader.Fold(t.Context(), alive.id))
	require.Empty(t, b.keys(famCounter), "and the counters go with the last writer")
}
