package ingest_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// leader acknowledges every message and remembers the hooks that were named.
type leader struct {
	dispatchv1.UnimplementedDispatchServiceServer
	mu    sync.Mutex
	named map[hook.ID]int
	rows  map[hook.ID]hook.Row
}

func (l *leader) Notify(s grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if m.GetCommitted() == nil {
			continue
		}
		c, err := wire.ReadCommitted(m.GetCommitted())
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, g := range c.Groups {
			for _, id := range g.Hooks {
				l.named[id]++
				if l.rows != nil {
					l.rows[id] = hook.Row{Partition: g.Partition, Key: g.Key, Hook: id, Due: g.Start, Version: g.Start}
				}
			}
		}
		l.mu.Unlock()
		if err := s.Send(&dispatchv1.NotifyResponse{Acknowledged: c.Sequence}); err != nil {
			return err
		}
	}
}

func (l *leader) times(id hook.ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named[id]
}

func acknowledging(t testing.TB) *grpc.ClientConn { return dial(t, &leader{named: map[hook.ID]int{}}) }

func dial(t testing.TB, l dispatchv1.DispatchServiceServer) *grpc.ClientConn {
	t.Helper()
	pipe := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	dispatchv1.RegisterDispatchServiceServer(server, l)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(pipe) })
	conn, err := grpc.NewClient("passthrough:leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
		wg.Wait()
	})
	return conn
}

// hook reads a hook that was named to the leader.
func (l *leader) hook(t testing.TB, s *store.Store, id hook.ID) *hook.Hook {
	t.Helper()
	var row hook.Row
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		r, ok := l.rows[id]
		row = r
		return ok
	}, 5*time.Second, time.Millisecond)
	found, err := s.Fetch(t.Context(), []hook.Row{row})
	require.NoError(t, err)
	require.NotNil(t, found[0].Hook)
	return found[0].Hook
}
