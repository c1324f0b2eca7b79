package sinkrunner

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// nothing delivers, reads and knows at no cost.
type nothing struct{ source *source.Source }

func (nothing) Deliver(context.Context, *sink.Delivery) hook.Outcome {
	return hook.Outcome{Class: hook.Delivered, Status: 200}
}

func (nothing) Close() {}

func (n nothing) AtLeast(context.Context, string, string, hook.Timestamp) (*source.Source, error) {
	return n.source, nil
}

func (nothing) Fetch(_ context.Context, rows []hook.Row) ([]store.Fetched, error) {
	out, d, h := make([]store.Fetched, len(rows)), new(hook.Delivery), new(hook.Hook)
	for i := range out {
		out[i] = store.Fetched{Epoch: 1, Delivery: d, Hook: h}
	}
	return out, nil
}

// BenchmarkRunner is what an attempt costs beside its reads and its delivery, the leader's side of the stream included:
// lease, log, report and acknowledgement, at most 256 at once.
func BenchmarkRunner(b *testing.B) {
	free := nothing{newSource("log")}
	h := &harness{t: b, leader: &fakeLeader{streams: make(chan *fakeStream, 1)}, ended: make(chan error, 1)}
	server, conn := h.connect()
	defer server.Stop()
	defer func() { require.NoError(b, conn.Close()) }()
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	runner, err := New(Default(), Deps{
		Leader: conn, Store: free, Sources: free, Sinks: sink.Set{"log": free},
		Log:     zap.New(zapcore.NewCore(encoder, zapcore.AddSync(io.Discard), zap.InfoLevel)),
		Metrics: prometheus.NewRegistry(),
	})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	go func() { h.ended <- runner.Run(ctx) }()
	f := <-h.leader.streams
	welcome := &dispatchv1.Welcome{Epoch: 1}
	m := &dispatchv1.LeaseResponse_Welcome{Welcome: welcome}
	require.NoError(b, f.stream.Send(&dispatchv1.LeaseResponse{Message: m}))
	b.ReportAllocs()
	leased, settled := 0, 0
	for b.Loop() {
		leased++
		if leased%64 != 0 {
			continue
		}
		batch := make([]wire.Attempt, 64)
		for i := range batch {
			batch[i] = attempt(uint64(leased - 63 + i))
		}
		m := &dispatchv1.LeaseResponse_Attempts{Attempts: wire.AttemptsProto(batch)}
		require.NoError(b, f.stream.Send(&dispatchv1.LeaseResponse{Message: m}))
		for leased-settled > 128 {
			settled += acknowledge(b, f)
		}
	}
	for settled < leased/64*64 {
		settled += acknowledge(b, f)
	}
	b.StopTimer()
	stop()
	require.NoError(b, <-h.ended)
}

func acknowledge(b *testing.B, f *fakeStream) int {
	select {
	case m := <-f.got:
		reports, err := wire.ReadReports(m.GetOutcomes().GetOutcomes())
		require.NoError(b, err)
		leases := make([]hook.Lease, len(reports))
		for i, r := range reports {
			leases[i] = r.Lease
		}
		settled := &dispatchv1.LeaseResponse_Settled{Settled: &dispatchv1.Settled{Leases: wire.LeasesProto(leases)}}
		require.NoError(b, f.stream.Send(&dispatchv1.LeaseResponse{Message: settled}))
		return len(leases)
	case <-time.After(10 * time.Second):
		b.Fatal("the runner says nothing")
		return 0
	}
}
