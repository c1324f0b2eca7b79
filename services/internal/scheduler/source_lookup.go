package scheduler

import (
	"context"
	"errors"

	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// sourceOf reads what the core needs to know of a source. A source that does not exist is an answer, not an error.
func (s *Scheduler) sourceOf(ctx context.Context, sourceID string) (core.Source, error) {
	owner, name, ok := source.SplitID(sourceID)
	if !ok {
		return core.Source{}, nil
	}
	src, err := s.sources.Source(ctx, owner, name)
	if errors.Is(err, store.ErrSourceNotFound) {
		return core.Source{}, nil
	}
	if err != nil {
		return core.Source{}, err
	}
	return core.Source{
		Found: true, Incarnation: src.Incarnation, Revision: src.Revision, Policy: src.RetryPolicy(s.cfg.Retry),
	}, nil
}
