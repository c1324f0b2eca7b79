package scenario_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // shows what errors carry
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
)

// TestMessagesThatNoProcessSendsAreRefusedWithAReason speaks to the leader as a broken or hostile process would, beside
// a good load, which must not notice.
func TestMessagesThatNoProcessSendsAreRefusedWithAReason(t *testing.T) {
	w := four(t, harness.Options{})
	w.send(load.Config{Rate: 50, Workers: 8})
	w.flow(10)
	conn := w.dialLeader()
	client := dispatchv1.NewDispatchServiceClient(conn)

	for name, c := range map[string]struct {
		send []*dispatchv1.NotifyRequest
		code codes.Code
		says string
	}{
		"no hello":         {[]*dispatchv1.NotifyRequest{committed(1, 1)}, codes.InvalidArgument, "writer_id"},
		"nothing":          {[]*dispatchv1.NotifyRequest{{}}, codes.InvalidArgument, "writer_id"},
		"short writer":     {[]*dispatchv1.NotifyRequest{writer(15)}, codes.InvalidArgument, "writer_id"},
		"a second hello":   {[]*dispatchv1.NotifyRequest{writer(16), writer(16)}, codes.InvalidArgument, "sequence"},
		"too many rows":    {[]*dispatchv1.NotifyRequest{writer(16), committed(1, 4097)}, codes.InvalidArgument, "hook_ids"},
		"too many groups":  {[]*dispatchv1.NotifyRequest{writer(16), committed(4097, 1)}, codes.InvalidArgument, "groups"},
		"over 16 MiB":      {[]*dispatchv1.NotifyRequest{writer(16), committed(1, 1<<20)}, codes.ResourceExhausted, "larger than max"},
		"a row without id": {[]*dispatchv1.NotifyRequest{writer(16), spoiled()}, codes.InvalidArgument, "groups[0]"},
	} {
		ctx, cancel := w.soon()
		stream, err := client.Notify(ctx, grpc.MaxCallSendMsgSize(64<<20))
		require.NoError(t, err)
		for _, m := range c.send {
			if stream.Send(m) != nil {
				break // refused before the last
			}
		}
		_, err = stream.Recv()
		cancel()
		requireRefused(t, name, err, c.code, c.says)
	}
	for name, m := range map[string]*dispatchv1.LeaseRequest{
		"no hello": {Message: &dispatchv1.LeaseRequest_Goodbye{Goodbye: &dispatchv1.Goodbye{}}},
		"nothing":  {},
	} {
		ctx, cancel := w.soon()
		stream, err := client.Lease(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(m))
		_, err = stream.Recv()
		cancel()
		requireRefused(t, "lease: "+name, err, codes.InvalidArgument, "runner_id")
	}
	w.garbage(conn)
	w.delivers()
	w.finish()
	w.nobodyDied()
}

// garbage is no message at all: in a call, and on the port.
func (w *world) garbage(conn *grpc.ClientConn) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	desc := &dispatchv1.DispatchService_ServiceDesc.Streams[0]
	stream, err := conn.NewStream(ctx, desc, "/"+dispatchv1.DispatchService_ServiceDesc.ServiceName+"/"+desc.StreamName, grpc.ForceCodec(raw{}))
	require.NoError(w.t, err)
	junk := make([]byte, 1<<10)
	_, _ = rand.Read(junk)
	junk[0] = 0xff // no field begins so
	require.NoError(w.t, stream.SendMsg(junk))
	requireRefused(w.t, "garbage", stream.RecvMsg(new([]byte)), codes.Internal, "unmarshal")

	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", string(junk), ""} {
		c, err := net.Dial("tcp", w.cluster.Address(w.leader()))
		require.NoError(w.t, err)
		require.NoError(w.t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = io.WriteString(c, text)
		require.NoError(w.t, err)
		_, err = io.Copy(io.Discard, c)
		require.NotErrorIs(w.t, err, os.ErrDeadlineExceeded, "the connection is closed")
		_ = c.Close()
	}
}

// raw sends bytes as they are.
type raw struct{}

var _ encoding.Codec = raw{}

func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *(v.(*[]byte)) = b; return nil }
func (raw) Name() string                    { return "proto" }
func requireRefused(t *testing.T, name string, err error, code codes.Code, says string) {
	t.Helper()
	require.Equal(t, code, status.Code(err), "%s: %v", name, err)
	require.Contains(t, fmt.Sprint(status.Convert(err).Message(), status.Convert(err).Details()), says, name)
}

// TestI11_AFloodOfMadeUpRowsStarvesNobody names rows that do not exist, of as many tenants, as fast as the leader takes them.
func TestI11_AFloodOfMadeUpRowsStarvesNobody(t *testing.T) {
	w := four(t, harness.Options{})
	w.send(load.Config{Rate: 50, Workers: 8})
	w.flow(10)
	conn := w.dialLeader()
	stream, err := dispatchv1.NewDispatchServiceClient(conn).Notify(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(writer(16)))
	flood, stop := context.WithCancel(t.Context())
	sent := make(chan int, 1)
	m := committed(4096, 1)
	go func() {
		n := 0
		defer func() { sent <- n }()
		for flood.Err() == nil {
			n++
			m.GetCommitted().Sequence = uint64(n)
			if stream.Send(m) != nil {
				return
			}
		}
	}()
	worst := time.Duration(0)
	for end := time.Now().Add(scaled(3*time.Second, time.Minute)); time.Now().Before(end); {
		began := time.Now()
		w.delivers()
		worst = max(worst, time.Since(began))
	}
	stop()
	t.Logf("%d messages of 4,096 rows; the slowest hook took %s", <-sent, worst)
	require.Less(t, worst, 5*time.Second)
	w.finish()
	w.nobodyDied()
}

func (w *world) dialLeader() *grpc.ClientConn {
	w.t.Helper()
	conn, err := w.cluster.Dial(w.leader())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func writer(n int) *dispatchv1.NotifyRequest {
	id := make([]byte, n)
	_, _ = rand.Read(id)
	return &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: &dispatchv1.WriterHello{WriterId: id}}}
}

// committed names rows that are nowhere.
func committed(groups, rows int) *dispatchv1.NotifyRequest {
	c := &dispatchv1.Committed{Sequence: 1, Groups: make([]*dispatchv1.RowGroup, groups)}
	for i := range c.Groups {
		ids := make([][]byte, rows)
		for j := range ids {
			ids[j] = make([]byte, 16)
			_, _ = rand.Read(ids[j])
		}
		c.Groups[i] = &dispatchv1.RowGroup{
			Key: &dispatchv1.SinkKey{Tenant: fmt.Sprint("nobody", i), SourceId: "raw", Type: "http"}, Start: 1, HookIds: ids,
		}
	}
	return &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c}}
}

func spoiled() *dispatchv1.NotifyRequest {
	m := committed(1, 1)
	m.GetCommitted().GetGroups()[0].HookIds[0] = []byte("short")
	return m
}
