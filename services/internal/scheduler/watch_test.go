package scheduler

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	"ankusa.dev/services/internal/wire"
)

func TestAFilterThatCanMatchNothingIsRefusedByItsField(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := led(t, testConfig())
		for field, req := range map[string]*eventv1.WatchRequest{
			"tenant":    {Tenant: ".."},
			"source_id": {SourceId: "a.b.c"},
			"sink":      {Sink: "nope"},
			"outcome":   {Outcome: []string{"dead", "deaf"}},
			"resume":    {Resume: "x"},
		} {
			stream, err := eventv1.NewEventServiceClient(n.conn).Watch(t.Context(), req)
			require.NoError(t, err)
			_, err = stream.Recv()
			requireRefusal(t, err, codes.InvalidArgument, "invalid_filter", field)
			_, fields, _ := wire.Reason(err)
			require.Equal(t, field, fields["field"])
		}
		stream, err := eventv1.NewEventServiceClient(n.conn).Watch(t.Context(), &eventv1.WatchRequest{
			Tenant: "acme", SourceId: "acme.demo", Sink: "http", Outcome: []string{"dead"},
		})
		require.NoError(t, err)
		_, err = stream.Header()
		require.NoError(t, err)
	})
}
