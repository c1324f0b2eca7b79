package inprocess_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"
)

func TestCallsGoWhereTheServiceServes(t *testing.T) {
	const name = "ankusa.event.v1.EventService"
	synctest.Test(t, func(t *testing.T) {
		s := &service{watch: func(_ *eventv1.WatchRequest, stream watching) error {
			<-stream.Context().Done()
			return nil
		}}
		server, stop := serve(s)
		states := health.NewServer()
		healthpb.RegisterHealthServer(server, states)
		conn := server.Connect(name)
		client := eventv1.NewEventServiceClient(conn)
		_, err := client.Watch(t.Context(), &eventv1.WatchRequest{})
		require.Equal(t, codes.Unavailable, status.Code(err))
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = client.Watch(brief, &eventv1.WatchRequest{}, grpc.WaitForReady(true))
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))

		time.AfterFunc(time.Minute, func() { states.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING) })
		began := time.Now()
		stream, err := client.Watch(t.Context(), &eventv1.WatchRequest{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(began))

		states.SetServingStatus(name, healthpb.HealthCheckResponse_NOT_SERVING)
		synctest.Wait()
		_, err = client.Watch(t.Context(), &eventv1.WatchRequest{})
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.NoError(t, stream.Context().Err(), "what has begun goes on")
		states.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
		fresh := server.Connect(name)
		_, err = eventv1.NewEventServiceClient(fresh).Watch(t.Context(), &eventv1.WatchRequest{})
		require.NoError(t, err, "a new connection asks before it answers")
		require.NoError(t, fresh.Close())
		require.NoError(t, conn.Close())
		_, err = stream.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		_, err = client.Watch(t.Context(), &eventv1.WatchRequest{}, grpc.WaitForReady(true))
		require.Equal(t, codes.Canceled, status.Code(err))
		stop()
	})
}

// faltering is a health service whose first watches end, some of them after they said that the service serves.
type faltering struct {
	healthpb.UnimplementedHealthServer
	watches atomic.Int64
}

func (f *faltering) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	n := f.watches.Add(1)
	if n == 1 || n == 5 {
		if err := stream.Send(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
	}
	if n < 5 {
		return status.Error(codes.Internal, "faltering")
	}
	<-stream.Context().Done()
	return nil
}

func TestAHealthWatchThatEndsIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, stop := serve(&service{notify: echo})
		states := &faltering{}
		healthpb.RegisterHealthServer(server, states)
		conn := server.Connect("ankusa.dispatch.v1.DispatchService")
		synctest.Wait()
		client := dispatchv1.NewDispatchServiceClient(conn)
		_, err := client.Notify(t.Context())
		require.Equal(t, codes.Unavailable, status.Code(err), "nobody knows whether it serves")
		began := time.Now()
		_, err = client.Notify(t.Context(), grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, 150*time.Millisecond, time.Since(began), "10, 20, 40 and 80 ms")
		require.EqualValues(t, 5, states.watches.Load())
		stop()
		synctest.Wait()
		_, err = client.Notify(t.Context())
		require.Equal(t, codes.Unavailable, status.Code(err))
		time.Sleep(time.Hour)
		require.EqualValues(t, 5, states.watches.Load(), "a server that has stopped is not asked again")
		require.NoError(t, conn.Close())
	})
}

func TestACallOptionThatIsNotUnderstoodFailsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, stop := serve(&service{notify: echo, accept: func(context.Context, *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
			return &ingestv1.AcceptResponse{}, nil
		}})
		conn := server.Connect("")
		unary, streams := ingestv1.NewIngestServiceClient(conn), dispatchv1.NewDispatchServiceClient(conn)
		_, err := unary.Accept(t.Context(), &ingestv1.AcceptRequest{}, grpc.MaxCallRecvMsgSize(1))
		require.Equal(t, codes.Internal, status.Code(err))
		require.ErrorContains(t, err, "MaxRecvMsgSizeCallOption")
		_, err = unary.Accept(t.Context(), &ingestv1.AcceptRequest{}, grpc.EmptyCallOption{}, grpc.StaticMethod())
		require.NoError(t, err)
		_, err = streams.Notify(t.Context(), grpc.UseCompressor("gzip"))
		require.Equal(t, codes.Internal, status.Code(err))
		require.ErrorContains(t, err, "CompressorCallOption")
		var late metadata.MD
		_, err = streams.Notify(t.Context(), grpc.Trailer(&late))
		require.Equal(t, codes.Internal, status.Code(err), "nothing would fill it in")
		require.ErrorContains(t, err, "TrailerCallOption")
		require.NoError(t, conn.Close())
		stop()
	})
}

func TestAServerWithoutHealthServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, stop := serve(&service{notify: echo})
		conn := server.Connect("anything")
		stream, err := dispatchv1.NewDispatchServiceClient(conn).Notify(t.Context(), grpc.WaitForReady(true))
		require.NoError(t, err)
		require.NoError(t, stream.CloseSend())
		_, err = stream.Recv()
		require.Equal(t, codes.Aborted, status.Code(err))
		require.NoError(t, conn.Close())
		stop()
	})
}
