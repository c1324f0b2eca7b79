package sinkrunner

import (
	"time"

	"go.uber.org/zap/zapcore"

	"ankusa.dev/services/internal/hook"
)

// entry is the one wide event of an attempt. It writes itself into the log's encoder, since a line for every attempt is
// to cost little.
type entry struct {
	*lease
	hook.Outcome
	took     time.Duration // since the lease arrived
	reported bool
}

var _ zapcore.ObjectMarshaler = (*entry)(nil)

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (e *entry) MarshalLogObject(to zapcore.ObjectEncoder) error {
	key := &e.Row.Key
	to.AddString("hook_id", e.Row.Hook.String())
	to.AddString("tenant", key.Tenant)
	to.AddString("source_id", key.SourceID)
	to.AddUint16("sink_index", key.Index)
	to.AddString("sink", key.Type)
	to.AddUint32("attempt", e.Number)
	to.AddString("replay_id", e.ReplayID)
	to.AddUint64("epoch", e.Lease.Epoch)
	to.AddUint64("lease", e.Lease.ID)
	to.AddUint64("size", e.Size)
	to.AddString("outcome", outcomeText(e.Class))
	to.AddString("reason", e.Reason)
	to.AddUint16("status", e.Status)
	to.AddDuration("duration", e.Duration)
	to.AddDuration("waited", e.took-e.Duration)
	to.AddDuration("retry_after", e.RetryAfter)
	to.AddBool("reported", e.reported)
	return nil
}
