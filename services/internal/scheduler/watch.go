package scheduler

import (
	"context"
	"fmt"
	"sort"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// Watch streams events to one watcher. With a token it first reads the kept log from there; the live events that came
// meanwhile follow, so that some may come twice and none is missing.
func (s *Scheduler) Watch(req *eventv1.WatchRequest, stream grpc.ServerStreamingServer[eventv1.WatchResponse]) error {
	filter, err := readFilter(req)
	if err != nil {
		return err
	}
	from, err := s.readToken(req.GetResume())
	if err != nil {
		return err
	}
	t, leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	w, ok := t.hub.watch(filter.match)
	if !ok {
		return wire.Error(codes.ResourceExhausted, "too_many_watchers", nil)
	}
	defer t.hub.unwatch(w)
	// The caller learns that it watches; the first event may be hours away.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	last := watched{position: from}
	if from != 0 {
		if last.position, err = t.replay(stream, filter, from); err != nil {
			return err
		}
	}
	return t.follow(stream, w, last.position)
}

// follow sends what comes until the stream, the term or the watcher's patience ends.
func (t *term) follow(stream grpc.ServerStreamingServer[eventv1.WatchResponse], w *watcher, position hook.Timestamp) error {
	for {
		select {
		case e, ok := <-w.queue:
			if !ok {
				return t.cut(stream, w, position)
			}
			position = max(position, e.position)
			if err := stream.Send(eventProto(&e.event, position)); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (t *term) cut(stream grpc.ServerStreamingServer[eventv1.WatchResponse], w *watcher, position hook.Timestamp) error {
	if !w.fell {
		return errNotLeading()
	}
	return stream.Send(eventProto(&hook.Event{Kind: hook.EventFellBehind, At: t.clock.now()}, position))
}

// logPage bounds the log entries read at a time.
const logPage = 64

// replay sends the kept log from a position on, all partitions merged in the order of their settles.
func (t *term) replay(
	stream grpc.ServerStreamingServer[eventv1.WatchResponse], f filter, from hook.Timestamp,
) (hook.Timestamp, error) {
	for {
		page, next, err := t.logPage(stream.Context(), from)
		if err != nil {
			return from, wire.Error(codes.Unavailable, "store_unavailable", nil)
		}
		for _, entry := range page {
			for i := range entry.Events {
				if e := &entry.Events[i]; f.match(e) {
					if err := stream.Send(eventProto(e, entry.At)); err != nil {
						return from, err
					}
				}
			}
		}
		if next == 0 {
			return from, nil
		}
		from = next
	}
}

// logPage reads the next entries of all partitions up to where each of them has been read; next is zero at the end.
func (t *term) logPage(ctx context.Context, from hook.Timestamp) (page []store.LogEntry, next hook.Timestamp, err error) {
	upTo := ^hook.Timestamp(0)
	for p := range t.scheduler.deps.Store.Partitions() {
		entries, err := t.scheduler.deps.Store.Events(ctx, uint8(p), from, logPage)
		if err != nil {
			return nil, 0, err
		}
		if len(entries) == logPage {
			upTo = min(upTo, latest(entries))
			next = 1
		}
		page = append(page, entries...)
	}
	sort.SliceStable(page, func(i, j int) bool { return page[i].At < page[j].At })
	if next == 0 {
		return page, 0, nil
	}
	n := sort.Search(len(page), func(i int) bool { return page[i].At > upTo })
	return page[:n], upTo + 1, nil
}

func latest(entries []store.LogEntry) (at hook.Timestamp) {
	for _, e := range entries {
		at = max(at, e.At)
	}
	return at
}

// readToken reads a position; zero is now.
func (s *Scheduler) readToken(token string) (hook.Timestamp, error) {
	if token == "" {
		return 0, nil
	}
	at, err := strconv.ParseUint(token, 16, 64)
	if err != nil || len(token) != 16 {
		return 0, invalidFilter("resume")
	}
	t := s.term.Load()
	if t == nil {
		return 0, errNotLeading()
	}
	if !s.cfg.History || s.cfg.Retention > 0 && hook.Timestamp(at) < t.clock.now().Add(-s.cfg.Retention) {
		return 0, wire.Error(codes.OutOfRange, "resume_expired", nil)
	}
	return hook.Timestamp(at), nil
}

func token(at hook.Timestamp) string { return fmt.Sprintf("%016x", uint64(at)) }

// filter selects events; empty fields select all.
type filter struct {
	tenant, sourceID, sink string
	kinds                  map[hook.EventKind]bool
}

func readFilter(req *eventv1.WatchRequest) (filter, error) {
	f := filter{tenant: req.GetTenant(), sourceID: req.GetSourceId(), sink: req.GetSink()}
	if f.tenant != "" && !source.ValidName(f.tenant) {
		return f, invalidFilter("tenant")
	}
	if _, _, ok := source.SplitID(f.sourceID); f.sourceID != "" && !ok {
		return f, invalidFilter("source_id")
	}
	if f.sink != "" && !source.KnownSink(f.sink) {
		return f, invalidFilter("sink")
	}
	for _, name := range req.GetOutcome() {
		kind, ok := hook.ParseEventKind(name)
		if !ok {
			return f, invalidFilter("outcome")
		}
		if f.kinds == nil {
			f.kinds = make(map[hook.EventKind]bool)
		}
		f.kinds[kind] = true
	}
	return f, nil
}

func (f *filter) match(e *hook.Event) bool {
	return (f.tenant == "" || f.tenant == e.Key.Tenant) && (f.sourceID == "" || f.sourceID == e.Key.SourceID) &&
		(f.sink == "" || f.sink == e.Key.Type) && (f.kinds == nil || f.kinds[e.Kind])
}

func eventProto(e *hook.Event, position hook.Timestamp) *eventv1.WatchResponse {
	p := &eventv1.WatchResponse{
		Event: e.Kind.String(), At: e.At.Millis(), TenantId: e.Key.Tenant, SourceId: e.Key.SourceID,
		SinkIndex: uint32(e.Key.Index), Sink: e.Key.Type, Attempt: e.Attempt, Reason: e.Reason,
		ErrorClass: e.Class.String(), Status: uint32(e.Status), DurationMs: e.Duration.Milliseconds(), Resume: token(position),
	}
	if e.Hook != (hook.ID{}) {
		p.Id = e.Hook.String()
	}
	if e.NextDue != 0 {
		p.NextDueAt = e.NextDue.Millis()
	}
	return p
}
