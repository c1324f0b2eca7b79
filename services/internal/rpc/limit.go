package rpc

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Limit returns the listener with a bound on open connections, past which a new one is closed at once: its client takes
// that for a server that is away, and comes back later.
func Limit(l net.Listener, most int, r prometheus.Registerer) net.Listener {
	limited := &limited{Listener: l, most: int64(most), refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ankusa_rpc_connections_refused_total", Help: "gRPC connections closed at once, since there were too many.",
	})}
	r.MustRegister(limited.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ankusa_rpc_connections", Help: "Open gRPC connections.",
	}, func() float64 { return float64(limited.open.Load()) }))
	return limited
}

type limited struct {
	net.Listener
	most    int64
	open    atomic.Int64
	refused prometheus.Counter
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		l.refused.Inc()
		_ = conn.Close()
	}
}

type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
