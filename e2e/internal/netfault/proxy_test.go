package netfault_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/e2e/internal/netfault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every byte, one connection after the other and many at once.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func newProxy(t *testing.T) *netfault.Proxy {
	t.Helper()
	p, err := netfault.Listen("127.0.0.1:0", echo(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func dial(t *testing.T, p *netfault.Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

func say(t *testing.T, c net.Conn, r *bufio.Reader, text string) {
	t.Helper()
	_, err := io.WriteString(c, text+"\n")
	require.NoError(t, err)
	got, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, text+"\n", got)
}

func TestACutProxyResetsOldAndNewConnections(t *testing.T) {
	p := newProxy(t)
	c, r := dial(t, p)
	say(t, c, r, "hello")

	p.Cut()
	_, err := r.ReadByte()
	require.Error(t, err)
	fresh, err := net.Dial("tcp", p.Addr())
	if err == nil {
		_, err = fresh.Read(make([]byte, 1))
		_ = fresh.Close()
	}
	require.Error(t, err)

	p.Heal()
	c, r = dial(t, p)
	say(t, c, r, "again")
}

func TestAFrozenProxyHoldsBytesUntilItHeals(t *testing.T) {
	p := newProxy(t)
	c, r := dial(t, p)
	say(t, c, r, "hello")

	p.Freeze()
	_, err := io.WriteString(c, "held\n")
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = r.ReadByte()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())

	require.NoError(t, c.SetReadDeadline(time.Time{}))
	p.Heal()
	got, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", got)
}
