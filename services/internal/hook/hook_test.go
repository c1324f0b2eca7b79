package hook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAnIDIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		got, err := ParseID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, got)
	})
	const good = "01a22cec-c832-7001-b2cc-66b8389e88f5"
	id, err := ParseID(good)
	require.NoError(t, err)
	require.Equal(t, good, id.String())
	require.EqualValues(t, 0x01a22cecc832, id.Millis())
	for _, bad := range []string{"", good[1:], good + "0", "01A22CEC" + good[8:], "01a22cecac832-7001-b2cc-66b8389e88f5", "g" + good[1:]} {
		_, err := ParseID(bad)
		require.ErrorIs(t, err, ErrBadID, bad)
	}
}

func TestTheIdempotencyKeyIsTheEventsWhereItIsKnown(t *testing.T) {
	h := Hook{ID: ID{15: 1}, Tenant: "acme", SourceID: "acme.stripe"}
	require.Equal(t, "00000000-0000-0000-0000-000000000001", h.IdempotencyKey())
	h.DedupeKey = "evt_1"
	require.Equal(t, "acme:acme.stripe:evt_1", h.IdempotencyKey())
}

func TestAHeaderIsFoundInAnyCaseAndTheFirstCounts(t *testing.T) {
	h := Hook{Headers: []Header{{"X-A", "1"}, {"x-a", "22"}}, Body: []byte("333")}
	v, ok := h.Header("x-A")
	require.True(t, ok)
	require.Equal(t, "1", v)
	_, ok = h.Header("x-b")
	require.False(t, ok)
	require.Equal(t, 3+4+5, h.StoredSize())
}

func TestPlacesFollowTheAcknowledgement(t *testing.T) {
	require.True(t, Place{1, 9}.Less(Place{2, 0}))
	require.True(t, Place{1, 0}.Less(Place{1, 1}))
	require.False(t, Place{1, 1}.Less(Place{1, 1}))
	require.False(t, Place{2, 0}.Less(Place{1, 9}))
}

func TestATimestampCountsWholeMilliseconds(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, int(6*time.Millisecond+7), time.UTC)
	ts := At(now)
	require.Equal(t, now.Truncate(time.Millisecond), ts.Time())
	moved := (ts + 5).Add(1500 * time.Microsecond)
	require.Equal(t, ts.Millis()+1, moved.Millis())
	require.Equal(t, ts+5+1<<logicalBits, moved, "the logical part stays")
	require.Equal(t, time.Millisecond, moved.Sub(ts))
	require.Equal(t, -time.Millisecond, ts.Sub(moved))
	require.Zero(t, ts.Add(-100*365*24*time.Hour))
	require.Zero(t, FromMillis(-1))
}

func TestEveryClassHasANameAndAnErrorClass(t *testing.T) {
	seen := map[string]bool{}
	for c := Delivered; c <= Lost; c++ {
		require.NotEmpty(t, c.String())
		require.False(t, seen[c.String()], c.String())
		seen[c.String()] = true
		require.Equal(t, c == Delivered, c.ErrorClass() == NoError)
	}
	require.Empty(t, (Lost + 1).String())
	for e := ErrorPermanent; e <= ErrorTransient; e++ {
		got, ok := ParseErrorClass(e.String())
		require.True(t, ok)
		require.Equal(t, e, got)
	}
	_, ok := ParseErrorClass("")
	require.False(t, ok)
}
