package scheduler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// deadLetterDeliveries is the form of a deletion that takes along what is pending.
const deadLetterDeliveries = "dead_letter"

// DeleteSource closes a source, waits until no commit begun before can add a row, and deletes it, or opens it again
// where it has deliveries that are not to be ended. It takes the bound of commits, 5 s, and a little.
func (s *Scheduler) DeleteSource(ctx context.Context, req *adminv1.DeleteSourceRequest) (*adminv1.DeleteSourceResponse, error) {
	var err error
	switch req.GetDeliveries() {
	case "":
		err = s.deleteIdle(ctx, req)
	case deadLetterDeliveries:
		err = s.deletePending(ctx, req)
	default:
		err = invalidFilter("deliveries")
	}
	if err != nil {
		return nil, err
	}
	return &adminv1.DeleteSourceResponse{}, nil
}

// deleteIdle looks twice, since the first look costs a source that is not idle nothing.
func (s *Scheduler) deleteIdle(ctx context.Context, req *adminv1.DeleteSourceRequest) error {
	src, err := s.lookup(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return err
	}
	if err := s.idle(ctx, src); err != nil {
		return err
	}
	return s.remove(ctx, src, s.idle)
}

// deletePending needs the leader: it alone moves rows. Rows that it leaves to running attempts outlive the source, and
// end among the dead letters unless they are delivered.
func (s *Scheduler) deletePending(ctx context.Context, req *adminv1.DeleteSourceRequest) error {
	t, leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	src, err := s.lookup(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return err
	}
	ctx, cancel := t.during(ctx)
	defer cancel()
	err = s.remove(ctx, src, func(ctx context.Context, src *source.Source) error {
		n, err := t.deadLetter(ctx, src.ID())
		if err == nil {
			s.log.Info("deliveries dead-lettered with their source", zap.String("source_id", src.ID()), zap.Int("rows", n))
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return t.left(ctx)
	}
	return err
}

// remove deletes a source whose rows clear has dealt with, or opens it again. A process that dies within it leaves a
// source that is closed for a minute at most, and no row whose end is not committed.
func (s *Scheduler) remove(
	ctx context.Context, src *source.Source, clearRows func(context.Context, *source.Source) error,
) error {
	if err := s.closeSource(ctx, src); err != nil {
		return err
	}
	removed := false
	defer func() {
		if !removed {
			s.reopen(src)
		}
	}()
	if !sleep(ctx, store.CommitBound+time.Second) {
		return ctx.Err()
	}
	if err := s.whileClosed(ctx, src, clearRows); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	err := s.deps.Store.RemoveSource(ctx, src.Tenant, src.Name, src.Incarnation)
	if errors.Is(err, store.ErrSourceChanged) {
		return wire.Error(codes.Aborted, "source_changed", nil)
	}
	if err != nil {
		return s.adminError("delete source", err)
	}
	removed = true
	s.forsake(src)
	return nil
}

// closedPeriod is well within the minute after which a source that is closed is open again.
const closedPeriod = 15 * time.Second

// whileClosed keeps a source closed for as long as its rows are dealt with.
func (s *Scheduler) whileClosed(
	ctx context.Context, src *source.Source, clearRows func(context.Context, *source.Source) error,
) error {
	keeping, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for sleep(keeping, closedPeriod) {
			_ = s.closeSource(keeping, src) // logged; a source that is open by the end is not removed
		}
	}()
	defer func() {
		stop()
		<-stopped
	}()
	return clearRows(ctx, src)
}

func (s *Scheduler) closeSource(ctx context.Context, src *source.Source) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := s.deps.Store.CloseSource(ctx, src.Tenant, src.Name); err != nil {
		return s.adminError("close source", err)
	}
	return nil
}

// reopen takes a closing back even where the caller has gone. One that fails is over by itself a minute after it began.
func (s *Scheduler) reopen(src *source.Source) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := s.deps.Store.ReopenSource(ctx, src.Tenant, src.Name); err != nil {
		s.log.Warn("source stays closed for a minute", zap.String("source_id", src.ID()), zap.Error(err))
	}
}

// forsake has the leader, if it is this scheduler, know that a source is gone.
func (s *Scheduler) forsake(src *source.Source) {
	s.sources.Forget(src.Tenant, src.Name)
	if t := s.term.Load(); t != nil {
		t.post(func(c *core.Core, now hook.Timestamp) { c.Forsaken(now, src.ID(), src.Incarnation) })
	}
}

// idle fails when the source has deliveries.
func (s *Scheduler) idle(ctx context.Context, src *source.Source) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	rows, err := s.deps.Store.Pending(ctx, src.ID())
	if err != nil {
		return s.adminError("count deliveries", err)
	}
	if rows > 0 {
		return wire.Error(codes.FailedPrecondition, "source_has_deliveries", map[string]string{
			"pending": strconv.FormatInt(rows, 10), "inflight": "0",
		})
	}
	return nil
}
