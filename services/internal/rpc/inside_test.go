package rpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"
	"ankusa.dev/services/internal/rpc"
)

// inside serves a peer to callers of its own process.
func inside(t *testing.T, p *peer, log *zap.Logger) (grpc.ClientConnInterface, func()) {
	t.Helper()
	p.health = health.NewServer()
	p.leads(true)
	server := rpc.NewInside(log, p.health)
	ingestv1.RegisterIngestServiceServer(server, p)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, time.Second) }()
	conn := server.Connect(service)
	return conn, func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestCallsInsideAreGuardedAsThoseFromOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.DebugLevel)
		p := &peer{name: "p"}
		conn, stop := inside(t, p, zap.New(core))
		p.do = func(context.Context) error { panic("secret detail") }
		_, err := call(t.Context(), conn)
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "secret detail")
		require.Len(t, logged.FilterMessage("call panicked").All(), 1)
		p.do = func(context.Context) error { return errors.New("pq: password hunter2 is wrong") }
		_, err = call(t.Context(), conn)
		require.Equal(t, codes.Internal, status.Code(err))
		require.NotContains(t, err.Error(), "hunter2")
		require.Len(t, logged.FilterMessage("call failed").All(), 1)
		p.do = nil
		name, err := call(t.Context(), conn)
		require.NoError(t, err)
		require.Equal(t, "p", name)
		p.leads(false)
		synctest.Wait()
		_, err = ingestv1.NewIngestServiceClient(conn).Accept(t.Context(), &ingestv1.AcceptRequest{})
		require.Equal(t, codes.Unavailable, status.Code(err))
		stop()
	})
}
