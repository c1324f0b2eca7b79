package schedulerboot

import (
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/scheduler"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/source"
)

// settings turns the file's settings into the role's.
func settings(c config.Config) scheduler.Config {
	return scheduler.Config{
		Core: coreConfig(c), Retry: c.Dispatch.RetryPolicy(),
		Lease: c.Scheduler.Lease, Renew: c.Scheduler.Renew, Exclusive: c.Store.Type == config.StoreLocal,
		History: c.Scheduler.History, Retention: c.Scheduler.HistoryRetention, Rules: c.SourceRules(),
	}
}

func coreConfig(c config.Config) core.Config {
	d := c.Dispatch
	byDefault := limits(d, d.Tenants["default"])
	out := core.Config{
		Batch: d.Batch, MaxInflight: d.MaxInflight, MaxInflightBytes: d.MaxInflightBytes,
		Concurrency: or(d.Concurrency, 0), SinkConcurrency: or(d.SinkConcurrency, 0), Batching: source.Batching(),
		AttemptTimeout: d.AttemptTimeout, LeaseMargin: c.Scheduler.LeaseMargin, Grace: c.Scheduler.RunnerGrace,
		Breakers: core.Breakers{Failures: d.BreakerFailures, Open: d.BreakerOpen, MaxOpen: d.BreakerMaxOpen},
		Default:  byDefault, Tenants: map[string]core.Limits{},
	}
	for tenant, l := range d.Tenants {
		if tenant != "default" {
			out.Tenants[tenant] = limits(d, l)
		}
	}
	return out
}

// limits of a tenant; null is a quarter of the instance's windows, and for concurrency the core's half.
func limits(d config.Dispatch, l config.TenantLimits) core.Limits {
	return core.Limits{
		MaxInflight:      or(l.MaxInflight, max(1, d.MaxInflight/4)),
		MaxInflightBytes: or(l.MaxInflightBytes, max(1, d.MaxInflightBytes/4)),
		Concurrency:      or(l.Concurrency, 0),
	}
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}
