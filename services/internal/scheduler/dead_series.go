package scheduler

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxDeadSeries bounds the sources with dead letters that have series of their own; the others share one.
	maxDeadSeries = 1000
	// deadSeriesIdle is how long a source has had no dead letter before its series can make room for another's.
	deadSeriesIdle = time.Hour
	// deadSeriesSweep is the pause between searches for such.
	deadSeriesSweep = time.Minute

	// otherSources is no source's id: ids have letters, digits, "_", "-" and one dot.
	otherSources = "*"
)

// deadLetters counts by source and sink. Sources come and go with what tenants do: their series are bounded.
type deadLetters struct {
	total *prometheus.CounterVec

	mu    sync.Mutex
	last  map[string]time.Time // dead letter of each source with series
	swept time.Time
}

func newDeadLetters() *deadLetters {
	return &deadLetters{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ankusa_dispatch_dead_lettered_total",
			Help: `Deliveries that were given up; those of sources beyond 1000 under the source_id "*".`,
		}, []string{"source_id", "sink"}),
		last: make(map[string]time.Time),
	}
}

func (d *deadLetters) count(sourceID, sink string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.last[sourceID]; !known && !d.room(now) {
		d.total.WithLabelValues(otherSources, sink).Inc()
		return
	}
	d.last[sourceID] = now
	d.total.WithLabelValues(sourceID, sink).Inc()
}

// room says whether one more source can have series. It ends those of sources that have been idle for long, a counter
// that comes back later begins anew.
func (d *deadLetters) room(now time.Time) bool {
	if len(d.last) >= maxDeadSeries && now.Sub(d.swept) >= deadSeriesSweep {
		d.swept = now
		for id, last := range d.last {
			if now.Sub(last) >= deadSeriesIdle {
				delete(d.last, id)
				d.total.DeletePartialMatch(prometheus.Labels{"source_id": id})
			}
		}
	}
	return len(d.last) < maxDeadSeries
}
