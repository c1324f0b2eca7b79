// Package sink is what a runner knows about destinations: one delivery goes in, one outcome comes out.
package sink

import (
	"context"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

// Delivery is one attempt to hand a hook to one sink. All of it is shared and must not be changed.
type Delivery struct {
	Hook   *hook.Hook
	Source *source.Source
	// Sink is one of the source's.
	Sink *source.Sink
	// Attempt number, from 1.
	Attempt uint32
	// ReplayID is empty unless a replay job revived the delivery.
	ReplayID string
	// OrderingKey is the lane of an ordered sink, or empty.
	OrderingKey string
	// Cancel ends the context that Deliver is called with, for a sink that gives up before the runner does: one context
	// less for each attempt. Without it a sink makes its own.
	Cancel context.CancelCauseFunc
}

// Sink delivers hooks to destinations of one type. It is safe for concurrent use.
type Sink interface {
	// Deliver makes one attempt and returns soon after the context has ended, at the latest. It answers Delivered only
	// when the destination confirmed. Reasons hold no secret, no payload and nothing of a URL but its host.
	Deliver(ctx context.Context, d *Delivery) hook.Outcome
	// Close ends what the sink keeps open between deliveries. No Deliver may be running.
	Close()
}

// Set holds the sinks of a runner by type.
type Set map[string]Sink

// Close closes every sink.
func (s Set) Close() {
	for _, one := range s {
		one.Close()
	}
}
