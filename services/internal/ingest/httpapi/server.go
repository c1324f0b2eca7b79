package httpapi

import (
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/refusal"
)

// NewServer makes the server that the handler must run in: with deadlines for headers and for the first of a body, from
// where the handler itself goes on, for answers and for idle connections, and a bound on connections, past which a new
// one is closed at once. What strangers do wrong below HTTP, which the server answers by itself with 400, is logged at
// debug.
func NewServer(c Config, h http.Handler, r prometheus.Registerer, log *zap.Logger) (*http.Server, error) {
	errors, err := zap.NewStdLogAt(log.Named("http"), zap.DebugLevel)
	if err != nil {
		return nil, err
	}
	return &http.Server{
		Handler: h, ErrorLog: errors, MaxHeaderBytes: refusal.MaxHeaderBytes, ConnState: newConnections(c.MaxConnections, r).state,
		ReadHeaderTimeout: c.HeaderTimeout, ReadTimeout: c.HeaderTimeout + firstBody,
		WriteTimeout: c.BodyTimeout + 2*firstBody, IdleTimeout: c.IdleTimeout,
	}, nil
}

// connections counts the open ones.
type connections struct {
	limit   int64
	open    atomic.Int64
	refused prometheus.Counter
}

func newConnections(limit int, r prometheus.Registerer) *connections {
	c := &connections{limit: int64(limit), refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "ankusa_ingest_connections_refused_total", Help: "Connections closed at once, since there were too many.",
	})}
	r.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ankusa_ingest_connections", Help: "Open connections to the listener of hooks.",
	}, func() float64 { return float64(c.open.Load()) }))
	return c
}

func (c *connections) state(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if c.open.Add(1) > c.limit {
			c.refused.Inc()
			_ = conn.Close() // the server finds it closed and gives it up
		}
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	}
}
