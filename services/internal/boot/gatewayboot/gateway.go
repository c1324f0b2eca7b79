// Package gatewayboot makes the gateway a part of a process.
package gatewayboot

import (
	"context"
	"net/http"
	"net/http/pprof"
	"net/netip"

	"google.golang.org/grpc"

	"ankusa.dev/gateway"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/rpc"
)

// Build builds a process of the gateway alone.
func Build(_ context.Context, p *boot.Process) error {
	others := map[string]grpc.ClientConnInterface{}
	if len(p.Config.Peers.Ingest) > 0 {
		conn, err := p.Keep(rpc.Dial(p.Config.Peers.Ingest, "", p.Security))
		if err != nil {
			return err
		}
		others["ingest"] = conn
	}
	connect := func(service string) (grpc.ClientConnInterface, error) { return p.Connect(service) }
	return Add(p, connect, others)
}

// Connect makes a connection that is the process's to close.
type Connect func(service string) (grpc.ClientConnInterface, error)

// Add makes the role, with connections that connect makes to the schedulers by the health of a service, and the part
// that serves it. others are asked for their health alone.
func Add(p *boot.Process, connect Connect, others map[string]grpc.ClientConnInterface) error {
	admin, err := connect(adminv1.SourceService_ServiceDesc.ServiceName)
	if err != nil {
		return err
	}
	leader, err := connect(eventv1.EventService_ServiceDesc.ServiceName)
	if err != nil {
		return err
	}
	c, about := gateway.Default(), p.About()
	c.Instance, c.Version, c.Roles = about.Instance, about.Version, about.Roles
	h, err := gateway.New(c, gateway.Deps{
		Admin: admin, Leader: leader, Others: others,
		MetricsHandler: p.Metrics.Handler(), Metrics: p.Metrics, Log: p.Log.Named("gateway"),
	})
	if err != nil {
		return err
	}
	if p.Config.Admin.Pprof {
		h = withProfiles(h)
	}
	if onLoopback(p.Config.Admin.IP) {
		h = gateway.OnlyHosts(h, p.Config.Admin.Hosts...)
	}
	return p.ServeHTTP("admin", boot.Address(p.Config.Admin.IP, p.Config.Admin.Port), h)
}

func onLoopback(ip string) bool {
	address, err := netip.ParseAddr(ip)
	return err == nil && address.Unmap().IsLoopback()
}

func withProfiles(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
