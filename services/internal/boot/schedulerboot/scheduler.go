// Package schedulerboot makes a scheduler a part of a process.
package schedulerboot

import (
	"context"
	"net"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/storeboot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/scheduler"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/telemetry"
)

// Build builds a process of a scheduler alone.
func Build(open storeboot.Open) boot.Build {
	return func(ctx context.Context, p *boot.Process) error {
		s, port, err := storeboot.Add(ctx, p, open)
		if err != nil {
			return err
		}
		if err := ApplySources(ctx, p, s); err != nil {
			return err
		}
		health := telemetry.Handler(p.About(), p.Metrics, StoreCheck(s, p.Log))
		role, err := New(p, s, port, func(ctx context.Context) map[string]string { return telemetry.Missing(ctx, health) })
		if err != nil {
			return err
		}
		if err := p.ServeRPC(role.Register); err != nil {
			return err
		}
		if err := p.ServeHTTP("health", p.Config.Scheduler.HealthListen, health); err != nil {
			return err
		}
		p.Add(Part(role))
		return nil
	}
}

// ApplySources brings the sources of the file into the store.
func ApplySources(ctx context.Context, p *boot.Process, s *store.Store) error {
	return applySources(ctx, s, p.Config.Sources, p.Log.Named("sources"))
}

// New makes the role. missing says what keeps the process from its work.
func New(
	p *boot.Process, s *store.Store, port kv.Store, missing func(context.Context) map[string]string,
) (*scheduler.Scheduler, error) {
	collector, _ := port.(kv.Collector)
	role, err := scheduler.New(settings(p.Config), scheduler.Deps{
		Store: s, Log: p.Log.Named("scheduler"), Metrics: p.Metrics, Health: p.Health,
		Collector: collector, CheckSource: p.Config.CheckEgress(net.DefaultResolver),
		Reload: p.Reload, Missing: missing,
	})
	if err == nil {
		p.OnReload(func(c config.Config) { role.Reconfigure(settings(c)) })
	}
	return role, err
}

// Part runs the role.
func Part(role *scheduler.Scheduler) run.Part { return run.Part{Name: "scheduler", Run: role.Run} }

// StoreCheck proves with a write that the store takes commits.
func StoreCheck(s *store.Store, log *zap.Logger) telemetry.Check {
	return telemetry.Check{Name: "store", Check: func(ctx context.Context) string {
		if err := s.Ready(ctx); err != nil {
			log.Debug("store not ready", zap.Error(err))
			return "store_unavailable"
		}
		return ""
	}}
}
