// Package ingestboot makes ingest a part of a process.
package ingestboot

import (
	"context"
	"net"

	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/storeboot"
	"ankusa.dev/services/internal/ingest"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/store"
)

// Build builds a process of ingest alone.
func Build(open storeboot.Open) boot.Build {
	return func(ctx context.Context, p *boot.Process) error {
		s, _, err := storeboot.Add(ctx, p, open)
		if err != nil {
			return err
		}
		leader, err := p.Connect(dispatchv1.DispatchService_ServiceDesc.ServiceName)
		if err != nil {
			return err
		}
		role, _, err := New(p, s, leader)
		if err != nil {
			return err
		}
		if err := p.ServeRPC(role.Register); err != nil {
			return err
		}
		p.Add(Part(role))
		return nil
	}
}

// New makes the role and binds the address where it takes hooks.
func New(p *boot.Process, s *store.Store, leader grpc.ClientConnInterface) (*ingest.Ingest, net.Addr, error) {
	l, err := p.Listen("hooks", boot.Address(p.Config.HTTP.IP, p.Config.HTTP.Port))
	if err != nil {
		return nil, nil, err
	}
	role, err := ingest.New(settings(p.Config, p.Role), ingest.Deps{
		Store: s, Scheduler: leader, Listener: l, Process: p.About(), Metrics: p.Metrics, Log: p.Log.Named("ingest"),
	})
	return role, l.Addr(), err
}

// Part runs the role.
func Part(role *ingest.Ingest) run.Part { return run.Part{Name: "ingest", Run: role.Run} }
