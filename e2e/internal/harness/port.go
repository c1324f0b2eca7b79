package harness

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Loopback is where everything listens.
const Loopback = "127.0.0.1"

// handedOut has ports follow one another from somewhere on, so that none is handed out again before it is listened on.
var handedOut = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(rand.Uint32N(18_000))
	return n
}()

// FreePort finds a loopback port that nobody listens on. It lies below the range that the system hands out for outgoing
// connections, so that a process can be restarted on it.
func FreePort(ctx context.Context) (int, error) {
	for range 100 {
		port := 12_000 + int(handedOut.Add(1)%18_000)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", Address(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}

// Address is a loopback port as host:port.
func Address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }
