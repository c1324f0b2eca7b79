package gateway

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the gateway's metrics. Their labels are routes of the API, never what a client sends.
type meters struct {
	requests *prometheus.CounterVec
	streams  prometheus.Gauge
}

func newMeters(r prometheus.Registerer) (meters, error) {
	m := meters{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_gateway_requests_total",
			Help: "Requests of the REST API that have been answered, by route and status.",
		}, []string{"method", "route", "status"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ankusa_gateway_streams",
			Help: "Event streams that are open.",
		}),
	}
	return m, errors.Join(r.Register(m.requests), r.Register(m.streams))
}

func (m meters) count(method, route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answered, r)
		m.requests.WithLabelValues(method, route, strconv.Itoa(answered.status)).Inc()
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the status.
func (s *statusWriter) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController reach the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// turnstile lets a bounded number in at once, and turns the others away.
type turnstile struct {
	places chan struct{}
	inside prometheus.Gauge
}

func newTurnstile(places int, inside prometheus.Gauge) turnstile {
	return turnstile{places: make(chan struct{}, places), inside: inside}
}

func (t turnstile) enter() bool {
	select {
	case t.places <- struct{}{}:
		t.inside.Inc()
		return true
	default:
		return false
	}
}

func (t turnstile) leave() {
	<-t.places
	t.inside.Dec()
}
