package httpsink

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errClosed = errors.New("sink is closed")

// connections knows every open connection, so that Close leaves none: net/http alone closes only what it knows to be
// idle at that moment.
type connections struct {
	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
}

type connection struct {
	net.Conn
	home *connections
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// dialer wraps a dialer so that what it opens is known here.
func (c *connections) dialer(d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return c.add(conn)
	}
}

func (c *connections) add(conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(errClosed, conn.Close())
	}
	known := &connection{Conn: conn, home: c}
	c.open[known] = struct{}{}
	return known, nil
}

// Close closes the connection and forgets it.
func (c *connection) Close() error {
	c.home.mu.Lock()
	delete(c.home.open, c)
	c.home.mu.Unlock()
	return c.Conn.Close()
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for known := range c.open {
		_ = known.Conn.Close() // nobody waits for an answer any more
	}
	clear(c.open)
}
