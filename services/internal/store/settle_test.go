package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

// TestL05_ASettleWritesItsRowsEventsAndHistoryOrNothing: an outcome and what is recorded of it can never come apart.
func TestL05_ASettleWritesItsRowsEventsAndHistoryOrNothing(t *testing.T) {
	written := []byte{famDue, famLane, famCounter, famDead, famDeadTime, famHook, famEvent, famHistory}
	for name, c := range map[string]struct {
		verdict hook.Next
		ordered bool
	}{
		"done": {hook.Complete, false}, "again": {hook.Again, false}, "dead": {hook.Bury, false},
		"member done": {hook.Complete, true}, "member again": {hook.Again, true}, "member dead": {hook.Bury, true},
	} {
		for _, kind := range []faultkv.Kind{
			faultkv.Unavailable, faultkv.Conflict, faultkv.Bound, faultkv.UndeterminedLost, faultkv.None,
		} {
			b := newBench(t, nil)
			src := b.source("s", 1)
			in := incoming(src, "acme", "", nil)
			in.Bindings[0].Ordered = c.ordered
			_, groups := b.commit(b.NewWriter(random16()), in)
			row, leader := b.rows(groups)[0], b.lead()
			state := func() (all [][]kv.Pair) {
				for _, family := range written {
					all = append(all, b.keys(family))
				}
				return all
			}
			before := state()
			b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
				if c.Op == faultkv.Update {
					return faultkv.Fault{Kind: kind}
				}
				return faultkv.Fault{}
			})
			s := settled(row, c.verdict)
			s.Verdict.Due = row.Due.Add(60e9)
			_, err := leader.Settle(t.Context(), SlotOf(row.Partition, "acme"), []hook.Settlement{s})
			if kind == faultkv.None {
				require.NoError(t, err, name)
				require.Len(t, b.keys(famEvent), 1, name)
				require.Len(t, b.keys(famHistory), 1, name)
				require.NotEqual(t, before, state(), name)
				continue
			}
			require.Error(t, err, name)
			require.Equal(t, before, state(), "%s, fault %v", name, kind)
		}
	}
}
