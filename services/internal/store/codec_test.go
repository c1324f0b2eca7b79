package store

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"ankusa.dev/services/internal/hook"
)

func genState(t *rapid.T) hook.State {
	s := hook.State{
		Incarnation: rapid.Uint64().Draw(t, "incarnation"), Size: rapid.Uint32().Draw(t, "size"),
		Sinks: rapid.Uint16().Draw(t, "sinks"), Attempts: rapid.Uint32().Draw(t, "attempts"), Lost: rapid.Uint32().Draw(t, "lost"),
		FirstAttemptAt: hook.Timestamp(rapid.Uint64().Draw(t, "first")), ReplayID: rapid.String().Draw(t, "replay"),
	}
	for range rapid.IntRange(0, hook.MaxHistory).Draw(t, "history") {
		s.History = append(s.History, hook.Attempt{
			Number: rapid.Uint32().Draw(t, "number"), At: hook.Timestamp(rapid.Uint64().Draw(t, "at")),
			Class: hook.Class(rapid.Uint8().Draw(t, "class")), Status: rapid.Uint16().Draw(t, "status"),
			Duration: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration")),
			Reason:   rapid.String().Draw(t, "reason"), Response: rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "response"),
		})
	}
	return s
}

func TestRowsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := hook.Row{Ordered: rapid.Bool().Draw(t, "ordered"), Due: 5}
		copy(row.Hook[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		state := genState(t)
		got := hook.Delivery{Row: hook.Row{Ordered: row.Ordered}}
		require.NoError(t, decodeRow(encodeRow(&row, 77, &state), &got))
		require.Empty(t, cmp.Diff(state, got.State))
		require.EqualValues(t, 77, got.Version)
		if row.Ordered {
			require.Equal(t, row.Hook, got.Hook)
			require.Equal(t, row.Due, got.Due)
		}
	})
}

func TestAWakeUpSaysWhereItsMemberStandsAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := hook.Row{
			Ordered: true, Lane: string(rapid.SliceOf(rapid.Byte()).Draw(t, "lane")),
			Place: hook.Place{Start: hook.Timestamp(rapid.Uint64().Draw(t, "start")), Index: rapid.Uint32().Draw(t, "index")},
		}
		var got hook.Delivery
		require.NoError(t, decodeRow(encodeWake(&row), &got))
		require.Empty(t, cmp.Diff(hook.Delivery{Row: row}, got))
	})
}

func TestCountersComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
		c := counter{
			rows: n("rows"), bytes: n("bytes"), dead: n("dead"), foldedRows: n("folded rows"), foldedBytes: n("folded bytes"),
			turns: n("turns"), position: hook.Timestamp(n("position")), ordered: rapid.Bool().Draw(t, "ordered"),
		}
		got, err := decodeCounter(c.encode())
		require.NoError(t, err)
		require.Equal(t, c, got)
	})
}

func TestDeadLettersComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := DeadLetter{Reason: rapid.String().Draw(t, "reason"), Class: hook.ErrorClass(rapid.IntRange(1, 3).Draw(t, "class"))}
		d.State = genState(t)
		if d.Ordered = rapid.Bool().Draw(t, "ordered"); d.Ordered {
			d.Lane = rapid.String().Draw(t, "lane")
		}
		d.Key.SourceID, d.Key.Type = rapid.StringN(1, 20, -1).Draw(t, "source"), "http"
		got := DeadLetter{}
		require.NoError(t, decodeDead(encodeDead(&d, 3), &got))
		d.Version = 3
		require.Empty(t, cmp.Diff(d, got))
	})
}

func TestI12_HooksComeBackByteForByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := hook.Hook{
			Tenant: "acme", SourceID: "stripe", Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			ReceivedAt: rapid.Int64Range(0, math.MaxInt64).Draw(t, "at"), Verification: hook.Verification(rapid.IntRange(0, 2).Draw(t, "v")),
			Flagged: rapid.Bool().Draw(t, "flagged"), DedupeKey: rapid.String().Draw(t, "dedupe"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		for range rapid.IntRange(0, 5).Draw(t, "headers") {
			h.Headers = append(h.Headers, hook.Header{Name: rapid.String().Draw(t, "name"), Value: string(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))})
		}
		got, err := decodeHook("acme", hook.ID{}, encodeHook(&h, 9, []Binding{{Key: hook.SinkKey{Index: 2, Type: "log"}, Lane: "l", Ordered: true}}))
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(h, got.Hook))
		require.EqualValues(t, 9, got.start)
		require.Equal(t, "l", got.sinks[0].Lane)
	})
}

func FuzzValuesOfStrangersAreRefusedNotBelieved(f *testing.F) {
	f.Add(encodeRow(&hook.Row{}, 1, &hook.State{Size: 1}))
	f.Add(encodeWake(&hook.Row{Lane: "l", Place: hook.Place{Start: 1, Index: 2}}))
	f.Add([]byte{8, 2})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = decodeRow(b, &hook.Delivery{})
		_ = decodeDead(b, &DeadLetter{})
		_, _ = decodeHook("t", hook.ID{}, b)
		_, _ = decodeCounter(b)
		_, _ = decodeEvents(b)
		_, _ = decodeLease(b)
		_, _ = decodeGuard(b)
		_, _ = decodeDedupe(b)
		_, _ = decodeObligation(b)
		_, _ = decodeEpoch(b)
	})
}

func TestAValueOfAnotherFormatIsRefused(t *testing.T) {
	require.ErrorIs(t, decodeRow(encoder(nil).uint(formatField, currentFormat+1), &hook.Delivery{}), ErrCorrupt)
	require.ErrorIs(t, decodeRow(nil, &hook.Delivery{}), ErrCorrupt)
}
