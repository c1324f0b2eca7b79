package scheduler

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// GetHook tells what happened to a hook.
func (s *Scheduler) GetHook(ctx context.Context, req *adminv1.GetHookRequest) (*adminv1.GetHookResponse, error) {
	if !source.ValidName(req.GetTenant()) {
		return nil, wire.Error(codes.InvalidArgument, "invalid_tenant", nil)
	}
	id, err := hook.ParseID(req.GetId())
	if err != nil {
		return nil, wire.Error(codes.InvalidArgument, "invalid_filter", map[string]string{"field": "id"})
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	found, err := s.deps.Store.LookupHook(ctx, req.GetTenant(), id)
	if errors.Is(err, store.ErrHookNotFound) {
		return nil, wire.Error(codes.NotFound, "hook_not_found", nil)
	}
	if err != nil {
		return nil, s.adminError("look up hook", err)
	}
	out := &adminv1.GetHookResponse{
		Id: req.GetId(), TenantId: req.GetTenant(), SourceId: found.SourceID, ReceivedAt: found.ReceivedAt,
		State: overall(found.Deliveries),
	}
	for i := range found.Deliveries {
		out.Deliveries = append(out.Deliveries, deliveryProto(&found.Deliveries[i]))
	}
	return out, nil
}

const (
	statePending   = "pending"
	stateDelivered = "delivered"
	stateDead      = "dead"
	stateDropped   = "dropped"
)

func stateOf(h *store.History) string {
	switch h.Kind {
	case hook.Complete:
		return stateDelivered
	case hook.Bury:
		return stateDead
	case hook.Discard:
		return stateDropped
	default:
		return statePending
	}
}

func overall(deliveries []store.History) string {
	state := stateDelivered
	for i := range deliveries {
		switch stateOf(&deliveries[i]) {
		case statePending:
			return statePending
		case stateDead:
			state = stateDead
		}
	}
	return state
}

func deliveryProto(h *store.History) *adminv1.Delivery {
	d := &adminv1.Delivery{
		Sink: uint32(h.Key.Index), SinkType: h.Key.Type, State: stateOf(h), Attempts: h.State.Attempts,
		Reason: h.Reason, ErrorClass: h.Class.String(),
	}
	if h.Kind != 0 {
		d.SettledAt = h.At.Millis()
	}
	if h.Kind == hook.Again {
		d.NextDueAt = h.Due.Millis()
	}
	for i := range h.State.History {
		a := &h.State.History[i]
		d.LastAttempts = append(d.LastAttempts, &adminv1.DeliveryAttempt{
			Attempt: a.Number, At: a.At.Millis(), Outcome: a.Class.String(), Status: uint32(a.Status),
			DurationMs: a.Duration.Milliseconds(), Reason: strings.ToValidUTF8(a.Reason, "\uFFFD"),
			Response: strings.ToValidUTF8(string(a.Response), "\uFFFD"),
		})
	}
	return d
}
