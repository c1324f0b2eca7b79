package rpc_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/rpc"
)

func TestI11_ConnectionsPastTheBoundAreClosedAtOnce(t *testing.T) {
	a, metrics := newPeer("a", zap.NewNop(), rpc.Security{}), prometheus.NewPedanticRegistry()
	a.leads(true)
	l := listen(t, "127.0.0.1:0")
	stop := a.serve(rpc.Limit(l, 2, metrics))
	idle, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	conn, err := rpc.Dial([]string{l.Addr().String()}, service, rpc.Security{})
	require.NoError(t, err)
	_, err = call(within(t, 5*time.Second), conn)
	require.NoError(t, err)

	third, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, third.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = third.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, third.Close())
	require.NoError(t, testutil.GatherAndCompare(metrics, expected(2, 1)))

	require.NoError(t, idle.Close())
	other, err := rpc.Dial([]string{l.Addr().String()}, service, rpc.Security{})
	require.NoError(t, err)
	_, err = call(within(t, 10*time.Second), other)
	require.NoError(t, err, "there is room again")
	require.NoError(t, other.Close())
	require.NoError(t, conn.Close())
	require.NoError(t, stop())
	require.NoError(t, testutil.GatherAndCompare(metrics, expected(0, 1), "ankusa_rpc_connections"))
}

func expected(open, refused int) io.Reader {
	return strings.NewReader(fmt.Sprintf(`
# HELP ankusa_rpc_connections Open gRPC connections.
# TYPE ankusa_rpc_connections gauge
ankusa_rpc_connections %d
# HELP ankusa_rpc_connections_refused_total gRPC connections closed at once, since there were too many.
# TYPE ankusa_rpc_connections_refused_total counter
ankusa_rpc_connections_refused_total %d
`, open, refused))
}
