package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// lookupsAtOnce bounds the look-ups for one page.
const lookupsAtOnce = 16

// wanted is the sources that are to be looked up by their ids, each with the latest incarnation that a row of it names.
type wanted map[string]hook.Timestamp

// by asks for a row's source; a row that is not there has none.
func (w wanted) by(d *hook.Delivery) {
	if d != nil {
		w[d.Key.SourceID] = max(w[d.Key.SourceID], hook.Timestamp(d.Incarnation))
	}
}

// wantedBy is the sources of rows.
func wantedBy(rows []hook.Delivery) wanted {
	w := wanted{}
	w.byAll(rows)
	return w
}

func wantedByLanes(lanes []hook.LaneRows) wanted {
	w := wanted{}
	for i := range lanes {
		w.byAll(lanes[i].Rows)
	}
	return w
}

func (w wanted) byAll(rows []hook.Delivery) {
	for i := range rows {
		w.by(&rows[i])
	}
}

// sourcesOf looks up the sources of some rows as they are now, and none from before any of its rows: one may be deleted
// and created anew within the moment for which it is remembered. A page may hold rows of many, which do not wait for each
// other.
func (s *Scheduler) sourcesOf(ctx context.Context, w wanted) (map[string]core.Source, error) {
	ids := slices.Collect(maps.Keys(w))
	found, errs := make([]core.Source, len(ids)), make([]error, len(ids))
	each(len(ids), func(i int) { found[i], errs[i] = s.sourceOf(ctx, ids[i], w[ids[i]]) })
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 {
		return nil, errs[at]
	}
	out := make(map[string]core.Source, len(ids))
	for i, sourceID := range ids {
		out[sourceID] = found[i]
	}
	return out, nil
}

// each calls do with 0 to n-1, several at once, and returns when all have returned.
func each(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, lookupsAtOnce) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// sourceOf reads what the core needs to know of a source. A source that does not exist is an answer, not an error.
func (s *Scheduler) sourceOf(ctx context.Context, sourceID string, incarnation hook.Timestamp) (core.Source, error) {
	owner, name, ok := source.SplitID(sourceID)
	if !ok {
		return core.Source{}, nil
	}
	src, err := s.sources.AtLeast(ctx, owner, name, incarnation)
	if errors.Is(err, store.ErrSourceNotFound) {
		return core.Source{}, nil
	}
	if err != nil {
		return core.Source{}, err
	}
	return core.Source{
		Found: true, Incarnation: src.Incarnation, Revision: src.Revision, Policy: src.RetryPolicy(s.live.Load().retry),
	}, nil
}
