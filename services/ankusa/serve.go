package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/gatewayboot"
	"ankusa.dev/services/internal/boot/ingestboot"
	"ankusa.dev/services/internal/boot/runnerboot"
	"ankusa.dev/services/internal/boot/schedulerboot"
	"ankusa.dev/services/internal/boot/storeboot"
	"ankusa.dev/services/internal/boot/tikvboot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/rpc/inprocess"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/telemetry"
	"ankusa.dev/services/internal/tune"
)

func newServe(path *string) *cobra.Command {
	var roles []string
	c := &cobra.Command{
		Use: "serve", Short: "Run every role in this process", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			set, err := readRoles(roles)
			if err != nil {
				return err
			}
			if code := boot.Run(c.Context(), config.RoleAll, *path, set.build, c.ErrOrStderr()); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
	c.Flags().StringSliceVar(&roles, "roles", nil, "only these roles, of ingest, scheduler, sink-runner, gateway: all when empty")
	return c
}

// roleSet is the roles that run in this process.
type roleSet map[config.Role]bool

func readRoles(names []string) (roleSet, error) {
	known := []config.Role{config.RoleIngest, config.RoleScheduler, config.RoleSinkRunner, config.RoleGateway}
	set := roleSet{}
	for _, name := range names {
		if !slices.Contains(known, config.Role(name)) {
			return nil, fmt.Errorf("--roles must be of ingest, scheduler, sink-runner, gateway, got %q", name)
		}
		set[config.Role(name)] = true
	}
	for _, role := range known {
		set[role] = set[role] || len(names) == 0
	}
	return set, nil
}

// build makes the roles. They talk to each other as they do across machines, without the network. The order is that of the stop,
// backwards: no more requests and hooks, then no more attempts, then no leader. A process without a scheduler keeps what
// it accepts for one that comes later.
func (r roleSet) build(ctx context.Context, p *boot.Process) error {
	if p.Config.Store.Type == config.StoreLocal {
		tune.Processors()
	}
	p.Roles = slices.DeleteFunc(boot.Roles(p.Config), func(name string) bool { return !r[config.Role(name)] })
	store, port, err := storeboot.Add(ctx, p, openStore)
	if err != nil {
		return err
	}
	if err := schedulerboot.ApplySources(ctx, p, store); err != nil {
		return err
	}
	// What ingest says of the store is what every role says, where ingest runs.
	health := telemetry.Handler(p.About(), p.Metrics, schedulerboot.StoreCheck(store, p.Log))
	missing := func(ctx context.Context) map[string]string { return telemetry.Missing(ctx, health) }
	var services []func(grpc.ServiceRegistrar)
	var parts []run.Part
	if r[config.RoleScheduler] {
		role, err := schedulerboot.New(p, store, port, missing)
		if err != nil {
			return err
		}
		services, parts = append(services, role.Register), append(parts, schedulerboot.Part(role))
	}
	inside := p.ServeInside(services...)
	connect := func(service string) *inprocess.Conn {
		conn := inside.Connect(service)
		p.Owns("connection", conn)
		return conn
	}
	leader := connect(dispatchv1.DispatchService_ServiceDesc.ServiceName)
	if r[config.RoleSinkRunner] {
		role, err := runnerboot.New(p, store, leader)
		if err != nil {
			return err
		}
		parts = append(parts, runnerboot.Part(role))
	}
	if r[config.RoleIngest] {
		role, hooks, err := ingestboot.New(p, store, leader)
		if err != nil {
			return err
		}
		health = role.Handler()
		services, parts = append(services, role.Register), append(parts, ingestboot.Part(role))
		sayWhereToPost(p.Log, p.Config, hooks)
	}
	if err := p.ServeRPC(services...); err != nil {
		return err
	}
	p.Add(parts...)
	if p.Config.Admin.Enabled && r[config.RoleGateway] {
		return gatewayboot.Add(p, func(service string) (grpc.ClientConnInterface, error) { return connect(service), nil }, nil)
	}
	return nil
}

// sayWhereToPost names the URL of every source of the file, as it is reached from this machine.
func sayWhereToPost(log *zap.Logger, c config.Config, hooks net.Addr) {
	host := c.HTTP.IP
	if host == "" {
		host = "127.0.0.1"
	}
	_, port, err := net.SplitHostPort(hooks.String())
	if err != nil {
		return // not an address of TCP
	}
	base := url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: c.HTTP.Prefix}
	for _, s := range c.Sources {
		at := base.JoinPath(s.ID())
		if c.HTTP.Routing == config.RoutingTenantPath {
			at = base.JoinPath(s.Tenant, s.Name)
		}
		log.Info("post hooks to", zap.String("source_id", s.ID()), zap.Stringer("url", at))
	}
}

// openStore opens either driver.
func openStore(ctx context.Context, p *boot.Process) (kv.Store, error) {
	if p.Config.Store.Type == config.StoreTiKV {
		return tikvboot.Open(ctx, p)
	}
	o := local.Default()
	o.Dir = p.Config.Store.Dir
	return local.Open(o, p.Log)
}
