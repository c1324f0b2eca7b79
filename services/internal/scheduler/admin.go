package scheduler

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/source/sourcepb"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// adminTimeout bounds one admin call's work at the store.
const adminTimeout = 5 * time.Second

// CreateSource stores a new source.
func (s *Scheduler) CreateSource(ctx context.Context, req *adminv1.CreateSourceRequest) (*adminv1.CreateSourceResponse, error) {
	if !source.ValidName(req.GetTenant()) {
		return nil, wire.Error(codes.InvalidArgument, "invalid_tenant", nil)
	}
	src := sourcepb.From(req.GetSource(), req.GetTenant(), req.GetSource().GetName())
	if err := s.validate(src); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	src, err := s.deps.Store.CreateSource(ctx, src)
	if err != nil {
		return nil, s.adminError("create source", err)
	}
	return &adminv1.CreateSourceResponse{Source: sourcepb.To(src)}, nil
}

// GetSource reads a source.
func (s *Scheduler) GetSource(ctx context.Context, req *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
	src, err := s.lookup(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, err
	}
	return &adminv1.GetSourceResponse{Source: sourcepb.To(src)}, nil
}

// UpdateSource replaces a source.
func (s *Scheduler) UpdateSource(ctx context.Context, req *adminv1.UpdateSourceRequest) (*adminv1.UpdateSourceResponse, error) {
	old, err := s.lookup(ctx, req.GetTenant(), req.GetName())
	if err != nil {
		return nil, err
	}
	src, err := sourcepb.Replacement(req.GetSource(), old)
	if err != nil {
		return nil, invalidSource(err)
	}
	if err := s.validate(src); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if src, err = s.deps.Store.UpdateSource(ctx, src); err != nil {
		return nil, s.adminError("update source", err)
	}
	s.revised(src)
	return &adminv1.UpdateSourceResponse{Source: sourcepb.To(src)}, nil
}

// revised has the leader, if it is this scheduler, try the source's sinks at once.
func (s *Scheduler) revised(src *source.Source) {
	s.sources.Forget(src.Tenant, src.Name)
	if t := s.term.Load(); t != nil {
		t.post(func(c *core.Core, now hook.Timestamp) { c.Revised(now, src.ID()) })
	}
}

// maxSources bounds a listing. A tenant with more gets an error.
const maxSources = 10_000

// ListSources reads all sources of a tenant.
func (s *Scheduler) ListSources(ctx context.Context, req *adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error) {
	if !source.ValidName(req.GetTenant()) {
		return nil, wire.Error(codes.InvalidArgument, "invalid_tenant", nil)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	list, err := s.deps.Store.ListSources(ctx, req.GetTenant(), maxSources)
	if err != nil {
		return nil, s.adminError("list sources", err)
	}
	out := &adminv1.ListSourcesResponse{Tenant: req.GetTenant()}
	for _, src := range list {
		out.Entries = append(out.Entries, sourcepb.To(src))
	}
	return out, nil
}

func (s *Scheduler) lookup(ctx context.Context, tenant, name string) (*source.Source, error) {
	if !source.ValidName(tenant) {
		return nil, wire.Error(codes.InvalidArgument, "invalid_tenant", nil)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	src, err := s.deps.Store.Source(ctx, tenant, name)
	if err != nil {
		return nil, s.adminError("read source", err)
	}
	return src, nil
}

func (s *Scheduler) validate(src *source.Source) error {
	if err := src.Validate("", s.cfg.Rules); err != nil {
		return invalidSource(err)
	}
	if s.deps.CheckSource != nil {
		if err := s.deps.CheckSource(src); err != nil {
			return invalidSource(err)
		}
	}
	return nil
}

func invalidSource(err error) error {
	return wire.Error(codes.InvalidArgument, "invalid_source", map[string]string{"message": err.Error()})
}

// adminError tells the client the kind of an error, and the log the rest.
func (s *Scheduler) adminError(what string, err error) error {
	switch {
	case errors.Is(err, store.ErrSourceExists):
		return wire.Error(codes.AlreadyExists, "source_exists", nil)
	case errors.Is(err, store.ErrSourceNotFound), errors.Is(err, store.ErrSourceChanged):
		return wire.Error(codes.NotFound, "source_not_found", nil)
	case errors.Is(err, store.ErrTooManySources):
		return wire.Error(codes.FailedPrecondition, "too_many_sources", nil)
	case errors.Is(err, store.ErrBadCursor):
		return invalidFilter("cursor")
	}
	s.log.Warn("admin call failed", zap.String("call", what), zap.Error(err))
	return wire.Error(codes.Unavailable, "store_unavailable", nil)
}

// ListDeadLetters reads a page of dead letters.
func (s *Scheduler) ListDeadLetters(
	ctx context.Context, req *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	f, err := deadFilter(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	page, err := s.deps.Store.DeadLetters(ctx, f)
	if err != nil {
		return nil, s.adminError("list dead letters", err)
	}
	out := &adminv1.ListDeadLettersResponse{}
	if page.Total >= 0 {
		out.Total = &page.Total
	}
	if page.Next != "" {
		out.NextCursor = &page.Next
	}
	for i := range page.Entries {
		out.Entries = append(out.Entries, deadProto(&page.Entries[i]))
	}
	return out, nil
}

const (
	defaultDeadLimit = 100
	maxDeadLimit     = 1000
	maxCursor        = 1024
)

func deadFilter(req *adminv1.ListDeadLettersRequest) (store.DeadFilter, error) {
	f := store.DeadFilter{
		Tenant: req.GetTenant(), SourceID: req.GetSourceId(), Cursor: req.GetCursor(), Limit: defaultDeadLimit,
		Since: hook.FromMillis(req.GetSince()),
	}
	if f.Tenant != "" && !source.ValidName(f.Tenant) {
		return f, invalidFilter("tenant")
	}
	if _, _, ok := source.SplitID(f.SourceID); f.SourceID != "" && !ok {
		return f, invalidFilter("source_id")
	}
	if len(f.Cursor) > maxCursor {
		return f, invalidFilter("cursor")
	}
	if req.Limit != nil {
		f.Limit = int(min(max(req.GetLimit(), 0), maxDeadLimit))
	}
	if req.Sink != nil {
		if req.GetSink() > 63 {
			return f, invalidFilter("sink")
		}
		index := uint16(req.GetSink())
		f.Sink = &index
	}
	if req.GetErrorClass() != "" {
		class, ok := hook.ParseErrorClass(req.GetErrorClass())
		if !ok {
			return f, invalidFilter("error_class")
		}
		f.Class = class
	}
	return f, nil
}

func deadProto(e *store.DeadEntry) *adminv1.DeadLetter {
	return &adminv1.DeadLetter{
		Id: e.Hook.String(), SourceId: e.Key.SourceID, TenantId: e.Key.Tenant, Seq: sequence(e.Hook),
		ReceivedAt: e.ReceivedAt, DeadLetteredAt: e.At.Millis(), Size: e.BodySize, ContentType: e.ContentType,
		Reason: e.Reason, Sink: uint32(e.Key.Index), SinkType: e.Key.Type, ErrorClass: e.Class.String(), Attempts: e.Attempts,
	}
}

// sequence orders hooks by their minting and stays below 2^53: milliseconds since 2020, and 12 bits of the id's counter.
func sequence(id hook.ID) int64 {
	const epoch2020 = 1_577_836_800_000
	return max(0, id.Millis()-epoch2020)<<12 | int64(id[6]&0x0f)<<8 | int64(id[7])
}
