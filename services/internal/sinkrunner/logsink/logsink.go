// Package logsink is the destination that is the process's own log.
package logsink

import (
	"context"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
)

// Sink writes one line per delivery, with the hook's ids and size and without any of its content.
type Sink struct{ log *zap.Logger }

var _ sink.Sink = (*Sink)(nil)

// New makes the sink.
func New(log *zap.Logger) *Sink { return &Sink{log: log.Named("log_sink")} }

// Deliver always succeeds.
func (s *Sink) Deliver(_ context.Context, d *sink.Delivery) hook.Outcome {
	s.log.Info("hook delivered to the log",
		zap.Stringer("id", d.Hook.ID), zap.String("tenant", d.Hook.Tenant), zap.String("source_id", d.Hook.SourceID),
		zap.Uint32("attempt", d.Attempt), zap.Int("size", len(d.Hook.Body)),
		zap.Stringer("verification", d.Hook.Verification), zap.String("replay_id", d.ReplayID))
	return hook.Outcome{Class: hook.Delivered}
}

// Close has nothing to close.
func (s *Sink) Close() {}
