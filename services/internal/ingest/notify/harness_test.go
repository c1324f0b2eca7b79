package notify_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/notify"
	"ankusa.dev/services/internal/wire"
)

// leader can be away, deaf or well, and remembers what it was told.
type leader struct {
	dispatchv1.UnimplementedDispatchServiceServer
	mu       sync.Mutex
	away     bool // refuses streams
	deaf     bool // acknowledges nothing
	hangUp   context.CancelFunc
	hellos   [][]hook.RunID
	messages []wire.Committed
	hooks    map[hook.ID]int
	backlogs map[hook.SinkKey]wire.Backlog
}

func (l *leader) Notify(s grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	l.mu.Lock()
	away := l.away
	l.hangUp = cancel
	l.mu.Unlock()
	if away {
		return status.Error(codes.Unavailable, "not the leader")
	}
	requests := make(chan *dispatchv1.NotifyRequest)
	go func() {
		defer close(requests)
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "deposed")
		case m, ok := <-requests:
			if !ok {
				return nil
			}
			if err := l.take(m, s); err != nil {
				return err
			}
		}
	}
}

func (l *leader) take(m *dispatchv1.NotifyRequest, s grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.GetHello() != nil {
		w, err := wire.ReadWriterHello(m.GetHello())
		l.hellos = append(l.hellos, w)
		return err
	}
	c, err := wire.ReadCommitted(m.GetCommitted())
	if err != nil {
		return err
	}
	l.messages = append(l.messages, c)
	for _, g := range c.Groups {
		for _, id := range g.Hooks {
			l.hooks[id]++
		}
	}
	for _, b := range c.Backlogs {
		if had, ok := l.backlogs[b.Key]; !ok || b.From < had.From {
			l.backlogs[b.Key] = b
		}
	}
	if l.deaf {
		return nil
	}
	return s.Send(&dispatchv1.NotifyResponse{Acknowledged: c.Sequence})
}

func (l *leader) set(away, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.deaf = away, deaf
	if l.hangUp != nil {
		l.hangUp()
	}
}

func (l *leader) heard() (messages, hooks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.messages), len(l.hooks)
}

// told is what the leader was told so far.
type told struct {
	hellos   [][]hook.RunID
	messages []wire.Committed
	hooks    map[hook.ID]int
	backlogs map[hook.SinkKey]wire.Backlog
}

func (l *leader) told() told {
	l.mu.Lock()
	defer l.mu.Unlock()
	return told{slices.Clone(l.hellos), slices.Clone(l.messages), maps.Clone(l.hooks), maps.Clone(l.backlogs)}
}

// flag counts its moves and can be stuck.
type flag struct {
	mu     sync.Mutex
	raised bool
	err    error
	moved
}

type moved struct {
	ups, downs int
	lastUp     time.Time
}

func (f *flag) moves() moved {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

func (f *flag) stick(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *flag) RaiseFlag(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.raised, f.lastUp = true, time.Now()
		f.ups++
	}
	return f.err
}

func (f *flag) LowerFlag(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.raised = false
		f.downs++
	}
	return f.err
}

func (f *flag) up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.raised
}

type rig struct {
	*notify.Notifier
	leader *leader
	flag   *flag
	stop   func()
}

var writerIDs = []hook.RunID{{1, 2, 3}, {1, 2, 4}}

func setUp(t *testing.T) *rig {
	l := &leader{hooks: map[hook.ID]int{}, backlogs: map[hook.SinkKey]wire.Backlog{}}
	pipe := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	dispatchv1.RegisterDispatchServiceServer(server, l)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(pipe) })
	conn, err := grpc.NewClient("passthrough:leader", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	require.NoError(t, err)
	f := &flag{}
	n := notify.New(conn, writerIDs, f, prometheus.NewRegistry(), zap.NewNop())
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() { require.NoError(t, n.Run(ctx)) })
	return &rig{Notifier: n, leader: l, flag: f, stop: sync.OnceFunc(func() {
		cancel()
		require.NoError(t, conn.Close())
		server.Stop()
		wg.Wait()
	})}
}

func key(n byte) hook.SinkKey {
	return hook.SinkKey{Tenant: "t" + string('a'+rune(n)), SourceID: "s", Type: "log"}
}

var serial uint64

func group(k hook.SinkKey, start hook.Timestamp, hooks int) hook.Group {
	g := hook.Group{Partition: 3, Key: k, Start: start}
	for range hooks {
		serial++
		g.Hooks = append(g.Hooks, hook.ID{0: byte(serial >> 24), 1: byte(serial >> 16), 2: byte(serial >> 8), 3: byte(serial)})
	}
	return g
}

func drained(t *testing.T, r *rig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, r.Drain(ctx))
}
