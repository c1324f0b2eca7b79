package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
)

// health answers as long as the process runs.
func health(cfg Config) http.Handler {
	roles := slices.Sorted(slices.Values(cfg.Roles))
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"status": "ok", "instance": cfg.Instance, "version": cfg.Version, "roles": append([]string{}, roles...),
		})
	})
}

// ready answers 200 while a scheduler serves the admin API, whether or not one leads (sources and dead letters can be
// read then; only the events need the leader), that scheduler's process misses nothing, and every other peer is healthy.
// Else the answer names who is not, and what is missing.
type ready struct {
	instance string
	timeout  time.Duration
	peers    []peer
	process  adminv1.ProcessServiceClient
}

type peer struct {
	name    string
	client  healthv1.HealthClient
	service string // empty for the peer as a whole
	word    string // what a client is told where the peer does not serve
}

func newReady(cfg Config, d Deps) ready {
	h := ready{instance: cfg.Instance, timeout: cfg.ReadyTimeout, process: adminv1.NewProcessServiceClient(d.Admin)}
	h.peers = append(h.peers, peer{
		"scheduler", healthv1.NewHealthClient(d.Admin), adminv1.SourceService_ServiceDesc.ServiceName, "dispatch_unavailable",
	})
	for name, conn := range d.Others {
		h.peers = append(h.peers, peer{name, healthv1.NewHealthClient(conn), "", name + "_unavailable"})
	}
	return h
}

// ServeHTTP asks each peer anew; a health check costs a peer next to nothing.
func (h ready) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.timeout)
	defer cancel()
	body := map[string]any{}
	httpStatus := http.StatusOK
	for name, word := range h.missing(ctx) {
		httpStatus = http.StatusServiceUnavailable
		body[name] = word
	}
	body["status"], body["instance"] = "ok", h.instance
	if httpStatus != http.StatusOK {
		body["status"], body["error"] = "unavailable", "not_ready"
		w.Header().Set("Retry-After", "1")
	}
	answer(w, httpStatus, body)
}

// missing is what keeps the deployment from its work, as words by name.
func (h ready) missing(ctx context.Context) map[string]string {
	missing := map[string]string{}
	process, err := h.process.Ready(ctx, &adminv1.ReadyRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented { // a scheduler of an earlier version
		missing["scheduler"] = "dispatch_unavailable"
	}
	for name, word := range process.GetMissing() {
		missing[name] = word
	}
	for _, p := range h.peers {
		if !p.serves(ctx) {
			missing[p.name] = p.word
		}
	}
	return missing
}

func (p peer) serves(ctx context.Context) bool {
	res, err := p.client.Check(ctx, &healthv1.HealthCheckRequest{Service: p.service})
	return err == nil && res.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

func answer(w http.ResponseWriter, httpStatus int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone; nobody else is to be told
}
