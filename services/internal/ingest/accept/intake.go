package accept

import (
	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/verify"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// intake is what is made of a source once per revision, so that a request finds all of it at hand.
type intake struct {
	source   *source.Source
	id       string
	verifier *verify.Verifier // nil for a source that nothing verifies
	ordered  bool
	own      []store.Binding // for the owner's hooks, where they do not depend on the hook
	series   *series
	label    string
	failures prometheus.Counter
	keyless  []prometheus.Counter // one for each sink; nil for those without an ordering key
}

func (a *Acceptor) intake(s *source.Source) *intake {
	in := &intake{source: s, id: s.ID(), verifier: verify.New(s.Verify), ordered: s.Ordered()}
	if !in.ordered {
		in.own = bindings(s.Bindings(s.Tenant, nil))
	} else {
		in.keyless = a.metrics.keylessOf(s)
	}
	in.series, in.label = a.metrics.of(in.id)
	if in.verifier != nil {
		in.failures = a.metrics.failures.WithLabelValues(in.label, s.Verify.Type, in.verifier.Scheme())
	}
	return in
}

func (a *Acceptor) forget(in *intake) { a.metrics.leave(in.label) }

func (in *intake) bindingsFor(tenant string, h *hook.Hook) []store.Binding {
	if !in.ordered && tenant == in.source.Tenant {
		return in.own
	}
	return bindings(in.source.Bindings(tenant, h))
}

// countKeyless counts what went to a keyless lane although its sink has a key for its lanes.
func (in *intake) countKeyless(list []store.Binding) {
	for i, counter := range in.keyless {
		if counter != nil && list[i].Lane == "" {
			counter.Inc()
		}
	}
}

func bindings(list []source.Binding) []store.Binding {
	out := make([]store.Binding, len(list))
	for i, b := range list {
		out[i] = store.Binding(b)
	}
	return out
}
