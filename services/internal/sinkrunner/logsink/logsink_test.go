package logsink

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
)

func TestL48_ADeliveryIsOneLineWithIdsAndSizeAndNoContent(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	s := New(zap.New(core))
	defer s.Close()
	h := &hook.Hook{
		ID: hook.ID{1}, Tenant: "acme", SourceID: "acme.stripe", Body: []byte("SECRET-PAYLOAD"), DedupeKey: "SECRET-KEY",
		Headers: []hook.Header{{Name: "x-a", Value: "SECRET-HEADER"}},
	}
	require.Equal(t, hook.Outcome{Class: hook.Delivered}, s.Deliver(t.Context(), &sink.Delivery{Hook: h, Attempt: 3}))
	require.Equal(t, 1, logs.Len())
	fields := logs.All()[0].ContextMap()
	require.Equal(t, h.ID.String(), fields["id"])
	require.Equal(t, "acme.stripe", fields["source_id"])
	require.EqualValues(t, 14, fields["size"])
	require.EqualValues(t, 3, fields["attempt"])
	require.NotContains(t, fmt.Sprint(fields), "SECRET")
}
