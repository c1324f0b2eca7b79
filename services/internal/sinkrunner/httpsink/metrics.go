package httpsink

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the sink; no label takes a value from outside.
type metrics struct {
	headers, closed, refusals *prometheus.CounterVec

	byCount, byBytes, closedIdle, closedLimit, refused prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		headers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_sink_headers_dropped_total",
			Help: "Provider headers that were not forwarded since a cap of the source was reached.",
		}, []string{"reason"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_http_pool_closed_total", Help: "Connection pools of receivers that were closed.",
		}, []string{"reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_http_pool_refused_total", Help: "Attempts that failed since every pool was in use.",
		}, []string{"scope"}),
	}
	m.byCount, m.byBytes = m.headers.WithLabelValues("count"), m.headers.WithLabelValues("bytes")
	m.closedIdle, m.closedLimit = m.closed.WithLabelValues("idle"), m.closed.WithLabelValues("limit")
	m.refused = m.refusals.WithLabelValues("instance")
	return m
}

func (m *metrics) register(r prometheus.Registerer, p *pools) error {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ankusa_http_pools", Help: "Receivers with a connection pool.",
	}, p.count)
	return errors.Join(r.Register(m.headers), r.Register(m.closed), r.Register(m.refusals), r.Register(gauge))
}

func (m *metrics) dropped(byCount, byBytes int) {
	if byCount > 0 {
		m.byCount.Add(float64(byCount))
	}
	if byBytes > 0 {
		m.byBytes.Add(float64(byBytes))
	}
}
