package scheduler

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
)

// metrics of a scheduler. Labels are types of sinks and words of ours, but for the sources of dead letters.
type metrics struct {
	deliveries   *prometheus.CounterVec
	deadLettered *deadLetters
	configErrors *prometheus.CounterVec
	transitions  *prometheus.CounterVec
	madeUp       prometheus.Counter
	writers      prometheus.Gauge
	leading      prometheus.Gauge

	mu    sync.Mutex
	stats core.Stats
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_dispatch_deliveries_total", Help: "Attempts that ended and were settled, by result.",
		}, []string{"result", "sink"}),
		deadLettered: newDeadLetters(),
		configErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_dispatch_config_errors_total", Help: "Permanent failures that are the operator's to mend, by type of sink.",
		}, []string{"sink"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_dispatch_breaker_transitions_total", Help: "Transitions of sinks' breakers, by the state entered.",
		}, []string{"sink", "state"}),
		madeUp: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ankusa_dispatch_made_up_sinks_total", Help: "Sinks that writers named rows of without ever having written one.",
		}),
		writers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ankusa_dispatch_writers", Help: "Writers that are connected; at most 16384 are let in.",
		}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{Name: "ankusa_scheduler_leading", Help: "1 while this scheduler leads."}),
	}
	r.MustRegister(m.deliveries, m.deadLettered.total, m.configErrors, m.transitions, m.madeUp, m.writers, m.leading)
	for name, g := range map[string]struct {
		help string
		read func(core.Stats) float64
	}{
		"running":       {"Attempts under way.", func(s core.Stats) float64 { return float64(s.Running) }},
		"claimed":       {"Rows claimed and not settled.", func(s core.Stats) float64 { return float64(s.Claimed) }},
		"claimed_bytes": {"Bytes of the hooks of claimed rows.", func(s core.Stats) float64 { return float64(s.ClaimedBytes) }},
		"runnable":      {"Tenants that could start an attempt.", func(s core.Stats) float64 { return float64(s.Runnable) }},
		"waiting":       {"Rows remembered until they are due.", func(s core.Stats) float64 { return float64(s.Waiting) }},
		"backlogs":      {"Tenants with rows to scan.", func(s core.Stats) float64 { return float64(s.Backlogs) }},
		"overdue_scans": {"Scans that the store has not answered for 200 ms.", func(s core.Stats) float64 { return float64(s.Overdue) }},
		"runners":       {"Sink-runners that are known.", func(s core.Stats) float64 { return float64(s.Runners) }},
		"slots":         {"Attempts that the connected runners can take.", func(s core.Stats) float64 { return float64(s.Slots) }},
		"keys":          {"Sinks with work.", func(s core.Stats) float64 { return float64(s.Keys) }},
		"lanes":         {"Lanes of ordered sinks whose heads are claimed or wait.", func(s core.Stats) float64 { return float64(s.Lanes) }},
		"lanes_blocked": {"Lanes whose heads wait for another attempt.", func(s core.Stats) float64 { return float64(s.LanesBlocked) }},
		"breakers_open": {"Breakers that are not closed.", func(s core.Stats) float64 { return float64(s.BreakersOpen) }},
		"tenants":       {"Tenants with work.", func(s core.Stats) float64 { return float64(s.Tenants) }},
		"scan_restarts": {"Scans of this term that began again, since they found fewer rows than the counters promised.", func(s core.Stats) float64 { return float64(s.Restarts) }},
	} {
		r.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "ankusa_dispatch_" + name, Help: g.help},
			func() float64 { return g.read(m.read()) },
		))
	}
	return m
}

func (m *metrics) leads(yes bool) {
	m.leading.Set(0)
	if yes {
		m.leading.Set(1)
	}
}

func (m *metrics) observe(s core.Stats) {
	m.mu.Lock()
	m.stats = s
	m.mu.Unlock()
}

func (m *metrics) read() core.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// breaker counts a transition.
func (m *metrics) breaker(e *hook.Event) {
	state := map[hook.EventKind]string{
		hook.EventBreakerOpened: "open", hook.EventBreakerHalfOpen: "half_open", hook.EventBreakerClosed: "closed",
	}[e.Kind]
	m.transitions.WithLabelValues(e.Key.Type, state).Inc()
}

// settled counts a batch.
func (m *metrics) settled(batch []hook.Settlement) {
	for i := range batch {
		s := &batch[i]
		m.deliveries.WithLabelValues(result(s), s.Delivery.Key.Type).Inc()
		if s.Verdict.Kind == hook.Bury {
			m.deadLettered.count(s.Delivery.Key.SourceID, s.Delivery.Key.Type, time.Now())
			if h := s.Verdict.State.History; len(h) > 0 && h[len(h)-1].Class == hook.PermanentConfig {
				m.configErrors.WithLabelValues(s.Delivery.Key.Type).Inc()
			}
		}
	}
}

func result(s *hook.Settlement) string {
	switch s.Verdict.Kind {
	case hook.Complete:
		return "delivered"
	case hook.Bury:
		return "dead"
	case hook.Again:
		return "retry"
	default:
		return "dropped"
	}
}
