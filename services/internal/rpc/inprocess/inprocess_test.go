package inprocess_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"
	"ankusa.dev/services/internal/rpc/inprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	notifying = grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]
	watching  = grpc.ServerStreamingServer[eventv1.WatchResponse]
)

// service does what a test says.
type service struct {
	ingestv1.UnimplementedIngestServiceServer
	dispatchv1.UnimplementedDispatchServiceServer
	eventv1.UnimplementedEventServiceServer
	accept func(context.Context, *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error)
	notify func(notifying) error
	watch  func(*eventv1.WatchRequest, watching) error
}

func (s *service) Accept(ctx context.Context, r *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
	return s.accept(ctx, r)
}
func (s *service) Notify(stream notifying) error                        { return s.notify(stream) }
func (s *service) Watch(r *eventv1.WatchRequest, stream watching) error { return s.watch(r, stream) }
func (s *service) register(r grpc.ServiceRegistrar) {
	ingestv1.RegisterIngestServiceServer(r, s)
	dispatchv1.RegisterDispatchServiceServer(r, s)
	eventv1.RegisterEventServiceServer(r, s)
}

// both runs a test against gRPC itself and against this package: what holds for one holds for the other.
func both(t *testing.T, s *service, test func(*testing.T, grpc.ClientConnInterface)) {
	t.Run("gRPC", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, l := grpc.NewServer(), bufconn.Listen(1<<20)
			s.register(server)
			go func() { _ = server.Serve(l) }()
			conn, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
			require.NoError(t, err)
			test(t, conn)
			require.NoError(t, conn.Close())
			server.Stop()
		})
	})
	t.Run("inprocess", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server, stop := serve(s)
			conn := server.Connect("")
			test(t, conn)
			require.NoError(t, conn.Close())
			stop()
		})
	})
}

func serve(s *service) (server *inprocess.Server, stop func()) {
	server = inprocess.New(nil, nil)
	s.register(server)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx, time.Second) // never fails
	}()
	return server, func() {
		cancel()
		<-ended
	}
}

func TestACallIsAnsweredWithMetadata(t *testing.T) {
	type key struct{}
	s := &service{accept: func(ctx context.Context, r *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		deadline, ok := ctx.Deadline()
		if !ok || time.Until(deadline) > time.Minute || ctx.Value(key{}) != nil {
			return nil, status.Error(codes.Internal, "the context is not that of a server")
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("one", "1"))
		_ = grpc.SetHeader(ctx, metadata.Pairs("one", "2"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("two", "3"))
		return &ingestv1.AcceptResponse{Id: md.Get("name")[0] + string(r.GetBody())}, nil
	}}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 1), time.Minute)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, "name", "a")
		var header, trailer metadata.MD
		answer, err := ingestv1.NewIngestServiceClient(conn).Accept(ctx, &ingestv1.AcceptRequest{Body: []byte("b")},
			grpc.Header(&header), grpc.Trailer(&trailer))
		require.NoError(t, err)
		require.Equal(t, "ab", answer.GetId())
		require.Equal(t, []string{"1", "2"}, header.Get("one"))
		require.Equal(t, []string{"3"}, trailer.Get("two"))
	})
}

func TestACallersMessagesStayItsOwn(t *testing.T) {
	kept := make(chan *ingestv1.AcceptRequest, 1)
	answer := &ingestv1.AcceptResponse{Id: "id"}
	s := &service{accept: func(_ context.Context, r *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
		kept <- r
		return answer, nil
	}}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		request := &ingestv1.AcceptRequest{Body: []byte("body")}
		got, err := ingestv1.NewIngestServiceClient(conn).Accept(t.Context(), request)
		require.NoError(t, err)
		request.Body[0] = 'x'
		require.Equal(t, "body", string((<-kept).GetBody()))
		got.Id = "other"
		require.Equal(t, "id", answer.GetId())
	})
}

func TestErrorsReachTheCallerAsStatuses(t *testing.T) {
	for want, given := range map[codes.Code]error{
		codes.NotFound:         status.Error(codes.NotFound, "no"),
		codes.Unknown:          errors.New("no status"),
		codes.DeadlineExceeded: context.DeadlineExceeded,
	} {
		s := &service{
			accept: func(context.Context, *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) { return nil, given },
			watch:  func(*eventv1.WatchRequest, watching) error { return given },
		}
		both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
			_, err := ingestv1.NewIngestServiceClient(conn).Accept(t.Context(), &ingestv1.AcceptRequest{})
			require.Equal(t, want, status.Code(err))
			stream, err := eventv1.NewEventServiceClient(conn).Watch(t.Context(), &eventv1.WatchRequest{})
			require.NoError(t, err)
			header, err := stream.Header()
			require.NoError(t, err)
			require.Empty(t, header.Get("any"))
			_, err = stream.Recv()
			require.Equal(t, want, status.Code(err))
		})
	}
}

func TestWhatIsNotThereIsUnimplemented(t *testing.T) {
	both(t, &service{}, func(t *testing.T, conn grpc.ClientConnInterface) {
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
		stream, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.Unimplemented, status.Code(err))
	})
}

func TestACallThatIsGivenUpReturnsBeforeItsHandler(t *testing.T) {
	var cancelled atomic.Int64
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		cancelled.Add(1)
		time.Sleep(time.Second)
		return ctx.Err()
	}
	s := &service{
		accept: func(ctx context.Context, _ *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
			return nil, wait(ctx)
		},
		notify: func(s notifying) error { return wait(s.Context()) },
	}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		cancelled.Store(0)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := ingestv1.NewIngestServiceClient(conn).Accept(ctx, &ingestv1.AcceptRequest{})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		ctx, cancel = context.WithCancel(t.Context())
		stream, err := dispatchv1.NewDispatchServiceClient(conn).Notify(ctx)
		require.NoError(t, err)
		synctest.Wait()
		cancel()
		_, err = stream.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		require.ErrorIs(t, stream.Send(&dispatchv1.NotifyRequest{}), io.EOF)
		require.Equal(t, time.Minute, time.Since(began))
		synctest.Wait()
		require.EqualValues(t, 2, cancelled.Load())
		time.Sleep(time.Second)
	})
}

// echo answers each message with its number, and says how the client's side ended.
func echo(s notifying) error {
	for n := uint64(1); ; n++ {
		if _, err := s.Recv(); errors.Is(err, io.EOF) {
			return status.Error(codes.Aborted, strconv.FormatUint(n-1, 10))
		} else if err != nil {
			return err
		}
		if err := s.Send(&dispatchv1.NotifyResponse{Acknowledged: n}); err != nil {
			return err
		}
	}
}

func TestAStreamKeepsItsOrderAndItsStatusComesLast(t *testing.T) {
	const n = 100
	both(t, &service{notify: echo}, func(t *testing.T, conn grpc.ClientConnInterface) {
		stream, err := dispatchv1.NewDispatchServiceClient(conn).Notify(t.Context())
		require.NoError(t, err)
		go func() {
			for range n {
				_ = stream.Send(&dispatchv1.NotifyRequest{})
			}
			_ = stream.CloseSend()
		}()
		for i := range uint64(n) {
			m, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, i+1, m.GetAcknowledged())
		}
		_, err = stream.Recv()
		require.Equal(t, codes.Aborted, status.Code(err))
		require.ErrorContains(t, err, strconv.Itoa(n))
	})
}

func TestWhatAHandlerSaidBeforeItsEndIsReceived(t *testing.T) {
	s := &service{watch: func(_ *eventv1.WatchRequest, stream watching) error {
		for i := range 3 {
			if err := stream.Send(&eventv1.WatchResponse{Id: strconv.Itoa(i)}); err != nil {
				return err
			}
		}
		stream.SetTrailer(metadata.Pairs("last", "word"))
		return nil
	}}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		stream, err := eventv1.NewEventServiceClient(conn).Watch(t.Context(), &eventv1.WatchRequest{})
		require.NoError(t, err)
		synctest.Wait() // the handler has returned
		for i := range 3 {
			m, err := stream.Recv()
			require.NoError(t, err)
			require.Equal(t, strconv.Itoa(i), m.GetId())
		}
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, []string{"word"}, stream.Trailer().Get("last"))
	})
}

func TestHeadersComeWhenTheyAreSent(t *testing.T) {
	s := &service{watch: func(_ *eventv1.WatchRequest, stream watching) error {
		time.Sleep(time.Second)
		if err := stream.SendHeader(metadata.Pairs("a", "b")); err != nil {
			return err
		}
		if stream.SendHeader(nil) == nil {
			return status.Error(codes.Internal, "headers were sent twice")
		}
		<-stream.Context().Done()
		return nil
	}}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		stream, err := eventv1.NewEventServiceClient(conn).Watch(ctx, &eventv1.WatchRequest{})
		require.NoError(t, err)
		header, err := stream.Header()
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, header.Get("a"))
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A handler may leave a goroutine behind that still sends: it must hear that the stream is over.
func TestSendingAfterTheEndFails(t *testing.T) {
	late := make(chan error, 1)
	s := &service{watch: func(_ *eventv1.WatchRequest, stream watching) error {
		go func() {
			<-stream.Context().Done()
			late <- stream.Send(&eventv1.WatchResponse{})
		}()
		return nil
	}}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		stream, err := eventv1.NewEventServiceClient(conn).Watch(t.Context(), &eventv1.WatchRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.ErrorIs(t, err, io.EOF)
		require.Error(t, <-late)
	})
}

func TestASenderWaitsForItsReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		server, stop := serve(&service{watch: func(_ *eventv1.WatchRequest, stream watching) error {
			for stream.Send(&eventv1.WatchResponse{}) == nil {
				sent.Add(1)
			}
			return nil
		}})
		conn := server.Connect("")
		stream, err := eventv1.NewEventServiceClient(conn).Watch(t.Context(), &eventv1.WatchRequest{})
		require.NoError(t, err)
		synctest.Wait()
		before := sent.Load()
		require.Less(t, before, int64(10))
		_, err = stream.Recv()
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, before+1, sent.Load())
		require.NoError(t, conn.Close())
		stop()
	})
}

func TestAStreamsMessagesAreSharedAndTheirFieldsAreAll(t *testing.T) {
	sent := &eventv1.WatchResponse{Id: "i", TenantId: "t", Attempt: 3, Status: 201, Resume: "r"}
	sent.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 0x01})
	s := &service{watch: func(_ *eventv1.WatchRequest, stream watching) error { return stream.Send(sent) }}
	both(t, s, func(t *testing.T, conn grpc.ClientConnInterface) {
		stream, err := eventv1.NewEventServiceClient(conn).Watch(t.Context(), &eventv1.WatchRequest{})
		require.NoError(t, err)
		m, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, sent.String(), m.String())
	})
}

func TestAStoppedServerWaitsForItsCallsAndCutsOffTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned := 0
		server, stop := serve(&service{notify: func(s notifying) error {
			defer func() { returned++ }()
			m, err := s.Recv()
			if err != nil {
				time.Sleep(time.Second)
				return err
			}
			time.Sleep(time.Duration(m.GetCommitted().GetSequence())) //nolint:gosec // small
			return s.Send(&dispatchv1.NotifyResponse{Acknowledged: 1})
		}})
		conn := server.Connect("")
		client := dispatchv1.NewDispatchServiceClient(conn)
		quick, err := client.Notify(t.Context())
		require.NoError(t, err)
		half := &dispatchv1.Committed{Sequence: uint64(time.Second / 2)}
		require.NoError(t, quick.Send(&dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: half}}))
		stuck, err := client.Notify(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		stop()
		require.Equal(t, 2*time.Second, time.Since(began), "the drain, and the handler that takes a second to leave")
		require.Equal(t, 2, returned)
		m, err := quick.Recv()
		require.NoError(t, err)
		require.EqualValues(t, 1, m.GetAcknowledged())
		_, err = stuck.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err))
		_, err = client.Notify(t.Context())
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.NoError(t, conn.Close())
	})
}
