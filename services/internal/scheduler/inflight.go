package scheduler

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
)

const (
	// maxInflightSeries bounds the tenants that are shown.
	maxInflightSeries = 100
	// inflightTimeout bounds the wait for a loop that is busy.
	inflightTimeout = time.Second
)

// inflight shows how close the fullest tenants are to their windows. It asks the leader's loop when it is asked itself.
type inflight struct {
	scheduler *Scheduler
	rows      *prometheus.Desc
}

func newInflight(s *Scheduler) *inflight {
	return &inflight{s, prometheus.NewDesc(
		"ankusa_dispatch_tenant_inflight", "Rows claimed and not settled, of the 100 tenants that hold the most.", []string{"tenant"}, nil,
	)}
}

// Describe implements prometheus.Collector.
func (i *inflight) Describe(to chan<- *prometheus.Desc) { to <- i.rows }

// Collect implements prometheus.Collector. A scheduler that does not lead has no series.
func (i *inflight) Collect(to chan<- prometheus.Metric) {
	for _, l := range i.loads() {
		to <- prometheus.MustNewConstMetric(i.rows, prometheus.GaugeValue, float64(l.Claimed), l.Tenant)
	}
}

func (i *inflight) loads() []core.Load {
	t := i.scheduler.term.Load()
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), inflightTimeout)
	defer cancel()
	loads, err := ask(ctx, t, func(c *core.Core, _ hook.Timestamp) []core.Load { return c.Busiest(maxInflightSeries) })
	if err != nil {
		return nil // the loop is busy, or the term is over
	}
	return loads
}
