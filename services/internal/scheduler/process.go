package scheduler

import (
	"context"

	"google.golang.org/grpc/codes"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/wire"
)

// Reload has the process read its configuration again.
func (s *Scheduler) Reload(context.Context, *adminv1.ReloadRequest) (*adminv1.ReloadResponse, error) {
	if s.deps.Reload == nil {
		return nil, wire.Error(codes.Unimplemented, "not_implemented", nil)
	}
	applied, restart, err := s.deps.Reload()
	if err != nil {
		return nil, wire.Error(codes.FailedPrecondition, "invalid_config", map[string]string{"message": err.Error()})
	}
	return &adminv1.ReloadResponse{Applied: applied, Restart: restart}, nil
}

// Ready tells what the process misses.
func (s *Scheduler) Ready(ctx context.Context, _ *adminv1.ReadyRequest) (*adminv1.ReadyResponse, error) {
	if s.deps.Missing == nil {
		return &adminv1.ReadyResponse{}, nil
	}
	return &adminv1.ReadyResponse{Missing: s.deps.Missing(ctx)}, nil
}
