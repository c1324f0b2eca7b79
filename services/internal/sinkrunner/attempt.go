package sinkrunner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/ferry"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// readers is how many reads of the store run at once; what comes meanwhile is read together.
const readers = 4

// maxRows bounds the rows that are read together, unless one message names more.
const maxRows = 512

var errTimeout = errors.New("attempt timed out")

// found is what the store has for one lease.
type found struct {
	store.Fetched
	err error
}

// job is an attempt that can begin.
type job struct {
	lease *lease
	found found
}

// start queues the read that the leases of one message begin with.
func (r *Runner) start(leases []*lease) {
	if len(leases) == 0 {
		return
	}
	err := r.reads.Submit(leases, func(all []found, err error) {
		for i, l := range leases {
			f := found{err: err}
			if err == nil {
				f = all[i]
			}
			if !r.workers.Do(job{l, f}) {
				r.decline(l)
			}
		}
	})
	if err == nil {
		return
	}
	for _, l := range leases { // the reads are closed
		r.decline(l)
	}
}

// decline ends an attempt that comes when the runner has stopped.
func (r *Runner) decline(l *lease) {
	r.book.finish(l, notStarted("runner stopping"))
	r.book.done()
}

// fetch reads what all that has queued needs in one call. Where something of it cannot be read, that alone fails.
func (r *Runner) fetch(ctx context.Context, batch [][]*lease) ([]ferry.Result[[]found], error) {
	n := 0
	for _, leases := range batch {
		n += len(leases)
	}
	rows := make([]hook.Row, 0, n)
	for _, leases := range batch {
		for _, l := range leases {
			rows = append(rows, l.Row)
		}
	}
	fetched, err := r.read(ctx, rows)
	if err != nil && unavailable(err) {
		return nil, err
	}
	all := make([]found, len(rows))
	for i := range rows {
		if err == nil {
			all[i].Fetched = fetched[i]
		} else if one, err := r.read(ctx, rows[i:i+1]); err != nil {
			all[i].err = err
		} else {
			all[i].Fetched = one[0]
		}
	}
	results := make([]ferry.Result[[]found], len(batch))
	for i, leases := range batch {
		results[i].Value, all = all[:len(leases)], all[len(leases):]
	}
	return results, nil
}

func (r *Runner) read(ctx context.Context, rows []hook.Row) ([]store.Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Read)
	defer cancel()
	return r.deps.Store.Fetch(ctx, rows)
}

// unavailable says whether a read failed for a reason that passes by itself.
func unavailable(err error) bool {
	return errors.Is(err, kv.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.Is(err, ferry.ErrInterrupted)
}

// attempt turns a lease into an outcome, whatever happens on the way.
func (r *Runner) attempt(l *lease, f found) {
	defer r.book.done()
	if f.err == nil && f.Epoch > l.Lease.Epoch {
		r.log.Info("lease of a deposed leader dropped", zap.Uint64("epoch", l.Lease.Epoch), zap.Uint64("current", f.Epoch))
		r.book.forget(l, f.Epoch)
		return
	}
	began := time.Now()
	o := r.run(l, f)
	o.Duration = time.Since(began)
	reported := r.book.finish(l, o)
	r.metrics.ended(l.Row.Key.Type, o, reported)
	if line := r.log.Check(zap.InfoLevel, "attempt ended"); line != nil {
		line.Write(zap.Inline(&entry{l, o, time.Since(l.arrived), reported}))
	}
}

// run delivers, unless there is a reason not to begin. A panic on the way is a failed attempt and nothing more.
func (r *Runner) run(l *lease, f found) (o hook.Outcome) {
	defer func() {
		if thrown := recover(); thrown != nil {
			o = hook.Outcome{Class: hook.Transient, Reason: "panic in the sink"}
			r.metrics.panics.Inc()
			r.log.Error("attempt panicked", zap.Stringer("hook_id", l.Row.Hook), zap.String("sink", l.Row.Key.Type),
				zap.String("panic", fmt.Sprintf("%T", thrown)), zap.Stack("stack"))
		}
	}()
	switch {
	case f.err != nil && !unavailable(f.err):
		r.log.Error("hook not readable", zap.Stringer("hook_id", l.Row.Hook), zap.Error(f.err))
		return hook.Outcome{Class: hook.Transient, Reason: "hook not readable"}
	case f.err != nil:
		return notStarted("store not readable")
	case f.Delivery == nil || f.Hook == nil:
		return hook.Outcome{Class: hook.Gone, Reason: "gone"}
	case l.ctx.Err() != nil:
		return notStarted("no time left to start")
	}
	src, o := r.source(l)
	if src == nil {
		return o
	}
	bound := bind(src, l.Row.Key)
	if bound == nil {
		reason := fmt.Sprintf("sink_gone %d %s", l.Row.Key.Index, l.Row.Key.Type)
		return hook.Outcome{Class: hook.SinkGone, Reason: reason}
	}
	destination := r.deps.Sinks[bound.Type]
	if destination == nil {
		return notStarted("no such sink here")
	}
	return judge(l, destination.Deliver(l.ctx, &sink.Delivery{
		Hook: f.Hook, Source: src, Sink: bound, Attempt: l.Number, ReplayID: l.ReplayID, OrderingKey: l.Row.Lane,
		Cancel: l.cancel,
	}))
}

func notStarted(reason string) hook.Outcome {
	return hook.Outcome{Class: hook.NotStarted, Reason: reason}
}

// source returns the row's source as it is now, at least at the revision that the leader knows, or why there is none.
func (r *Runner) source(l *lease) (*source.Source, hook.Outcome) {
	gone := hook.Outcome{Class: hook.SourceGone, Reason: "source_gone"}
	owner, name, _ := source.SplitID(l.Row.Key.SourceID) // checked when it was read
	src, err := r.deps.Sources.AtLeast(l.ctx, owner, name, l.SourceRevision)
	if err == nil && src.Incarnation != l.Incarnation { // a copy from before the source was created anew, or the row is
		src, err = r.deps.Sources.AtLeast(l.ctx, owner, name, src.Revision+1)
	}
	switch {
	case errors.Is(err, store.ErrSourceNotFound):
		return nil, gone
	case err != nil:
		return nil, notStarted("source not readable")
	case src.Incarnation != l.Incarnation:
		return nil, gone
	default:
		return src, hook.Outcome{}
	}
}

// bind finds the sink of a row: the one at its index, if that is of its type, else the only one of its type.
func bind(src *source.Source, key hook.SinkKey) (found *source.Sink) {
	if i := int(key.Index); i < len(src.Sinks) && src.Sinks[i].Type == key.Type {
		return &src.Sinks[i]
	}
	for i := range src.Sinks {
		if src.Sinks[i].Type != key.Type {
			continue
		}
		if found != nil {
			return nil
		}
		found = &src.Sinks[i]
	}
	return found
}

// judge replaces the sink's view of an attempt that was ended from here.
func judge(l *lease, o hook.Outcome) hook.Outcome {
	if o.Class == hook.Delivered || l.ctx.Err() == nil {
		return o
	}
	switch why := context.Cause(l.ctx); {
	case errors.Is(why, errTimeout):
		o.Class, o.Reason = hook.TimedOut, fmt.Sprintf("attempt_timeout %dms", l.limit.Milliseconds())
	case errors.Is(why, errCut):
		o.Class, o.Reason = hook.Transient, "runner stopped"
	}
	return o
}
