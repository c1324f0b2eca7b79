package notify

import "github.com/prometheus/client_golang/prometheus"

func (n *Notifier) register(r prometheus.Registerer) {
	gauge := func(name, help string, value func(*ledger) int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			n.mu.Lock()
			defer n.mu.Unlock()
			return float64(value(&n.ledger))
		}))
	}
	gauge("ankusa_notify_unacknowledged_rows", "Named rows that no leader acknowledged.", func(l *ledger) int { return l.named })
	gauge("ankusa_notify_backlogs", "Sinks with rows that are not named, or may be.", func(l *ledger) int {
		return len(l.backlogs) + len(l.doubts)
	})
}
