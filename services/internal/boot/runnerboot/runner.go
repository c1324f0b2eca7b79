// Package runnerboot makes a sink-runner a part of a process.
package runnerboot

import (
	"context"
	"os"
	"strconv"

	"google.golang.org/grpc"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/boot/storeboot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/sinkrunner"
	"ankusa.dev/services/internal/sinkrunner/httpsink"
	"ankusa.dev/services/internal/sinkrunner/logsink"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/telemetry"
)

// Build builds a process of a sink-runner alone.
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
		role, err := New(p, s, leader)
		if err != nil {
			return err
		}
		health := telemetry.Handler(p.About(), p.Metrics, telemetry.Check{Name: "scheduler", Check: reached(role)})
		if err := p.ServeHTTP("health", p.Config.Runner.HealthListen, health); err != nil {
			return err
		}
		p.Add(Part(role))
		return nil
	}
}

// New makes the role with its sinks.
func New(p *boot.Process, s *store.Store, leader grpc.ClientConnInterface) (*sinkrunner.Runner, error) {
	settings := httpsink.Default()
	settings.Version, settings.Policy = boot.Version, p.Config.EgressPolicy()
	overHTTP, err := httpsink.New(settings, p.Metrics)
	if err != nil {
		return nil, err
	}
	c := sinkrunner.Default()
	c.Name, c.Slots, c.Drain = name(), p.Config.Runner.Slots, p.Config.Runner.Drain
	c.Acknowledge, c.Silence = config.RunnerAcknowledge, p.Config.Scheduler.Lease
	if p.Config.Store.Type == config.StoreLocal {
		c.Silence = 0 // the leader is of this process
	}
	return sinkrunner.New(c, sinkrunner.Deps{
		Leader: leader, Store: s, Sources: sourcecache.Plain(s, sourcecache.Default()),
		Sinks: sink.Set{source.SinkLog: logsink.New(p.Log), source.SinkHTTP: overHTTP},
		Log:   p.Log, Metrics: p.Metrics,
	})
}

// Part runs the role.
func Part(role *sinkrunner.Runner) run.Part { return run.Part{Name: "sink-runner", Run: role.Run} }

// name tells people where a runner is.
func name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// reached is a check that a leader leases to the runner.
func reached(role *sinkrunner.Runner) func(context.Context) string {
	return func(ctx context.Context) string {
		if role.Ready(ctx) != nil {
			return "dispatch_unavailable"
		}
		return ""
	}
}
