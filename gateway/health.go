package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
)

// health answers as long as the process runs.
func health(cfg Config) http.Handler {
	roles := slices.Sorted(slices.Values(cfg.Roles))
	if roles == nil {
		roles = []string{}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, struct {
			Status   string   `json:"status"`
			Instance string   `json:"instance"`
			Version  string   `json:"version"`
			Roles    []string `json:"roles"`
		}{"ok", cfg.Instance, cfg.Version, roles})
	})
}

// ready answers 200 while a scheduler serves the admin API, whether or not one leads: sources and dead letters can be
// read then. Only the events need the leader.
type ready struct {
	client  healthv1.HealthClient
	timeout time.Duration
}

func (h ready) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	res, err := h.client.Check(ctx, &healthv1.HealthCheckRequest{Service: adminv1.SourceService_ServiceDesc.ServiceName})
	if err != nil || res.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		refuse(w, http.StatusServiceUnavailable, "dispatch_unavailable", map[string]any{"peer": "scheduler"})
		return
	}
	answer(w, map[string]string{"status": "ok"})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone; nobody else is to be told
}
