package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is one process's registry. What is registered through it carries the label instance.
type Metrics struct {
	prometheus.Registerer
	gatherer prometheus.Gatherer
}

// NewMetrics makes a registry that holds the runtime's and the process's own metrics, without the label.
func NewMetrics(instance string) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{
		Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"instance": instance}, registry),
		gatherer:   registry,
	}
}

// Handler answers with all metrics in the text format, version 0.0.4. A collector that fails costs its own series, not
// the answer.
func (m *Metrics) Handler() http.Handler {
	text := promhttp.HandlerFor(m.gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "text/plain;version=0.0.4")
		text.ServeHTTP(w, r)
	})
}
