package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/wire"
)

func (s *system) recorded() (ids []hook.RunID) {
	records, err := s.store.Writers(s.t.Context())
	require.NoError(s.t, err)
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestNoWriterOfAnOpenStreamIsTakenForGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		first, second := s.writer(), s.writer()
		ids := []hook.RunID{first.w.ID(), second.w.ID()}
		require.NoError(t, first.w.Beat(t.Context()))
		require.NoError(t, second.w.Beat(t.Context()))
		stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Notify(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&dispatchv1.NotifyRequest{
			Message: &dispatchv1.NotifyRequest_Hello{Hello: wire.WriterHelloProto(ids)},
		}))
		time.Sleep(2 * writerGone)
		require.ElementsMatch(t, ids, s.recorded(), "silent, and connected")
		require.NoError(t, stream.CloseSend())
		time.Sleep(writerGrace + 3*writerPeriod)
		require.Empty(t, s.recorded(), "long silent, and away")
	})
}

func TestI11_WritersThatComeAndGoAreRememberedUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := led(t, testConfig())
		w := newWriters(n.term.Load())
		for i := range maxGone + 10 {
			ids := []hook.RunID{{byte(i), byte(i >> 8)}}
			w.joined(ids)
			w.parted(ids)
		}
		require.Len(t, w.gone, maxGone)
		require.Equal(t, 1, w.missing(), "those beyond the bound are looked for at once")
		time.Sleep(writerGrace)
		require.Equal(t, maxGone+1, w.missing(), "and when their commits have landed")
		require.Zero(t, w.missing())
		require.Empty(t, w.here)
	})
}

func TestI11_ALeaderTakesWritersUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := led(t, testConfig())
		w := n.term.Load().writers
		id := func(i int) hook.RunID { return hook.RunID{byte(i), byte(i >> 8)} }
		for i := range maxHere - 1 {
			require.True(t, w.joined([]hook.RunID{id(i)}))
		}
		gauge := n.metrics.writers
		require.EqualValues(t, maxHere-1, testutil.ToFloat64(gauge))
		ids := []hook.RunID{id(maxHere - 1), id(maxHere)}
		stream, err := dispatchv1.NewDispatchServiceClient(n.conn).Notify(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&dispatchv1.NotifyRequest{
			Message: &dispatchv1.NotifyRequest_Hello{Hello: wire.WriterHelloProto(ids)},
		}))
		_, err = stream.Recv()
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "one too many: neither joins")
		require.ErrorContains(t, err, "too_many_writers")
		require.EqualValues(t, maxHere-1, testutil.ToFloat64(gauge))

		require.True(t, w.joined([]hook.RunID{id(0), id(1), id(maxHere - 1)}), "those that are here take no more room")
		require.False(t, w.joined([]hook.RunID{id(maxHere)}))
		w.parted([]hook.RunID{id(0), id(2)})
		require.True(t, w.joined([]hook.RunID{id(maxHere)}), "one of two has left for good")
		require.False(t, w.joined([]hook.RunID{id(2)}))
	})
}
