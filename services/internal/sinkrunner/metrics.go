package sinkrunner

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/hook"
)

// metrics of the runner. Labels are classes and the types of the runner's own sinks.
type metrics struct {
	attempts *prometheus.CounterVec
	duration *prometheus.HistogramVec
	panics   prometheus.Counter
	dropped  prometheus.Counter
	known    map[string]bool
}

func newMetrics(types []string) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_runner_attempts_total", Help: "Attempts that ended, by class of outcome and type of sink.",
		}, []string{"outcome", "sink"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ankusa_runner_attempt_duration_seconds", Help: "Time that an attempt took in its sink.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"sink"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ankusa_runner_panics_total", Help: "Attempts that ended in a panic of the sink.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ankusa_runner_dropped_total", Help: "Attempts that ended after the leader had taken their lease back.",
		}),
		known: map[string]bool{},
	}
	for _, t := range types {
		m.known[t] = true
	}
	return m
}

func (m *metrics) register(r prometheus.Registerer, b *book, connected func() int) error {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	running := func() int { n, _ := b.counts(); return n }
	unacknowledged := func() int { _, n := b.counts(); return n }
	var faults []error
	for _, c := range []prometheus.Collector{
		m.attempts, m.duration, m.panics, m.dropped,
		gauge("ankusa_runner_connected", "Whether a stream to the leader is open.", connected),
		gauge("ankusa_runner_running", "Attempts that run.", running),
		gauge("ankusa_runner_unacknowledged", "Outcomes that no leader has acknowledged.", unacknowledged),
	} {
		faults = append(faults, r.Register(c))
	}
	return errors.Join(faults...)
}

// outcomes are the classes in words, for logs and labels.
var outcomes = [...]string{
	hook.Delivered: "delivered", hook.Transient: "transient", hook.Throttled: "throttled", hook.Permanent: "permanent",
	hook.PermanentConfig: "permanent_config", hook.TimedOut: "timed_out", hook.Gone: "gone",
	hook.SourceGone: "source_gone", hook.SinkGone: "sink_gone", hook.NotStarted: "not_started",
}

func outcomeText(c hook.Class) string {
	if int(c) >= len(outcomes) || outcomes[c] == "" {
		return "unknown"
	}
	return outcomes[c]
}

// ended counts an attempt, and one whose lease was taken back meanwhile also as dropped.
func (m *metrics) ended(sinkType string, o hook.Outcome, reported bool) {
	if !reported {
		m.dropped.Inc()
	}
	if !m.known[sinkType] {
		sinkType = "other"
	}
	m.attempts.WithLabelValues(outcomeText(o.Class), sinkType).Inc()
	if o.Class.Sent() {
		m.duration.WithLabelValues(sinkType).Observe(o.Duration.Seconds())
	}
}
