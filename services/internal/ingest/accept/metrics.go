package accept

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/source"
)

// buckets of latencies, in seconds.
var buckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

// maxSeries bounds the sources that have series of their own; beyond it they share the label "*".
const maxSeries = 10_000

// otherSources is no source's id: ids have letters, digits, "_", "-" and one dot.
const otherSources = "*"

// metrics are the series of ingest. No label comes from a stranger: a source has series only once it was found in the
// store, and loses them when it leaves the cache.
type metrics struct {
	requests *prometheus.CounterVec
	refused  *prometheus.CounterVec
	failures *prometheus.CounterVec
	duration *prometheus.HistogramVec
	shed     prometheus.Counter
	commit   prometheus.Histogram
	hooks    prometheus.Counter
	keyless  *prometheus.CounterVec

	mu      sync.Mutex
	sources map[string]*series
}

// series are one source's handles.
type series struct {
	users    int // sources in the cache that hold it
	outcomes [outcomes]prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_ingest_requests_total", Help: `Requests to a known source, by outcome; those of sources beyond 10000 under the source_id "*".`,
		}, []string{"source_id", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_ingest_refused_total", Help: "Requests refused before their verification, by reason.",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_verify_failures_total", Help: "Requests whose verification failed.",
		}, []string{"source_id", "provider", "scheme"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ankusa_ingest_duration_seconds", Help: "Time from the read request to its outcome.", Buckets: buckets,
		}, []string{"source_id"}),
		shed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ankusa_load_shed_total", Help: "Requests answered 503 overload.",
		}),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ankusa_wal_commit_duration_seconds", Help: "Time of one commit of hooks.", Buckets: buckets,
		}),
		hooks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ankusa_wal_commit_batch_size", Help: "Sum of the hooks in all commits.",
		}),
		keyless: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_dispatch_lane_key_missing_total",
			Help: "Hooks that went to an ordered sink's keyless lane, since their ordering key could not be read.",
		}, []string{"sink"}),
		sources: map[string]*series{},
	}
	r.MustRegister(m.requests, m.refused, m.failures, m.duration, m.shed, m.commit, m.hooks, m.keyless)
	for _, reason := range []Kind{UnknownSource, PayloadTooLarge, BodyReadFailed, InvalidHeader, StoreUnavailable} {
		m.refused.WithLabelValues(reason.Code())
	}
	return m
}

// of returns the series of a source and counts a user; beyond the bound it is that of all others.
func (m *metrics) of(id string) (*series, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sources[id] == nil && len(m.sources) >= maxSeries {
		id = otherSources
	}
	s := m.sources[id]
	if s == nil {
		s = &series{duration: m.duration.WithLabelValues(id)}
		for k := range s.outcomes {
			s.outcomes[k] = m.requests.WithLabelValues(id, outcomeNames[k])
		}
		m.sources[id] = s
	}
	s.users++
	return s, id
}

// keylessOf returns the counter of each sink that has an ordering key. Types of sinks are few.
func (m *metrics) keylessOf(s *source.Source) []prometheus.Counter {
	list := make([]prometheus.Counter, len(s.Sinks))
	for i := range s.Sinks {
		if sink := &s.Sinks[i]; sink.Ordered && sink.OrderingKey != (source.OrderingKey{}) {
			list[i] = m.keyless.WithLabelValues(sink.Type)
		}
	}
	return list
}

// leave ends the series of a source with its last user.
func (m *metrics) leave(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sources[id]
	if s == nil {
		return
	}
	if s.users--; s.users > 0 || id == otherSources {
		return
	}
	delete(m.sources, id)
	gone := prometheus.Labels{"source_id": id}
	m.requests.DeletePartialMatch(gone)
	m.failures.DeletePartialMatch(gone)
	m.duration.DeletePartialMatch(gone)
}
