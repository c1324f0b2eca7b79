package config

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// Dispatch says how deliveries are claimed, run and retried.
type Dispatch struct {
	// Rows that scans ask for at once, in equal shares of the tenants that have some, and that make a settle due. A settling
	// transaction takes up to four times as many, at most 512, or batch where that is more. Default 128; 1 to 4096.
	Batch int `key:"batch"`
	// Most attempts at once. Default null, which is as many as the runners can take; 1 to 1000000.
	Concurrency *int `key:"concurrency" reload:"true"`
	// Most rows claimed and not settled. Default 4096; 1 to 1000000.
	MaxInflight int `key:"max_inflight" reload:"true"`
	// Most bytes of the hooks of rows claimed and not settled; a larger row runs alone. Default 134217728 (128 MiB);
	// 1 to 68719476736.
	MaxInflightBytes int64 `key:"max_inflight_bytes" reload:"true"`
	// How long an attempt may take, in milliseconds. Default 30000; 100 to 3600000.
	AttemptTimeout time.Duration `key:"attempt_timeout_ms"`
	// Most attempts at once of one sink of one tenant. Default 8; 1 to 1000000, and null is no cap.
	SinkConcurrency *int `key:"sink_concurrency" reload:"true"`
	// Failures in a row that open a sink's breaker, for one tenant: its rows are left alone until a probe succeeds. A
	// permanent failure does not count. Default 5; 0 to 1000000, and 0 turns breakers off.
	BreakerFailures int `key:"breaker_failures" reload:"true"`
	// How long a breaker stays open at first, in milliseconds; it doubles per failed probe. Default 30000; 1 to
	// 86400000.
	BreakerOpen time.Duration `key:"breaker_open_ms" reload:"true"`
	// The longest that a breaker stays open, in milliseconds. Default 300000; breaker_open_ms to 86400000.
	BreakerMaxOpen time.Duration `key:"breaker_max_open_ms" reload:"true"`
	// The longest pause that a destination can ask for, in milliseconds. Default 3600000; 1000 to 86400000.
	MaxRetryAfter time.Duration `key:"max_retry_after_ms" reload:"true"`
	// When a failed delivery is tried again; a source's own retry settings are laid over these.
	Retry Retry `key:"retry"`
	// Limits of a tenant by its id; "default" holds for every tenant that is not named. Default {}.
	Tenants map[string]TenantLimits `key:"tenants" reload:"true"`
}

// Retry is the policy of failed deliveries: capped exponential pauses with jitter up to a horizon.
type Retry struct {
	// Pause after the first failure, in milliseconds; it doubles per failure. Default 100; 1 to 86400000.
	Base time.Duration `key:"base_ms" reload:"true"`
	// Longest pause, in milliseconds, before jitter. Default 300000; base_ms to 86400000.
	Max time.Duration `key:"max_ms" reload:"true"`
	// Most attempts. Default null, which leaves the horizon as the only bound; 1 to 1000000.
	MaxAttempts *int `key:"max_attempts" reload:"true"`
	// Whether a pause is multiplied by a random factor from 0.5 to 1. Default true.
	Jitter bool `key:"jitter" reload:"true"`
	// The horizon: how long after its first attempt a delivery that still fails is given up, in milliseconds.
	// Default 86400000 (24 hours); 1000 to 2592000000.
	MaxElapsed time.Duration `key:"max_elapsed_ms" reload:"true"`
}

// TenantLimits bound what one tenant holds of the instance.
type TenantLimits struct {
	// Most rows claimed and not settled. Default null, which is a quarter of dispatch.max_inflight; 1 to 1000000.
	MaxInflight *int `key:"max_inflight"`
	// Most bytes of them. Default null, which is a quarter of dispatch.max_inflight_bytes; 1 to 68719476736.
	MaxInflightBytes *int64 `key:"max_inflight_bytes"`
	// Most attempts at once. Default null, which is half of what the instance runs, at least 1; 1 to 1000000.
	Concurrency *int `key:"concurrency"`
}

// RetryPolicy is the instance's policy, for sources without settings of their own.
func (d Dispatch) RetryPolicy() hook.RetryPolicy {
	p := hook.RetryPolicy{
		Base: d.Retry.Base, Max: d.Retry.Max, Jitter: d.Retry.Jitter,
		Horizon: d.Retry.MaxElapsed, MaxRetryAfter: d.MaxRetryAfter,
	}
	if d.Retry.MaxAttempts != nil {
		p.MaxAttempts = uint32(*d.Retry.MaxAttempts)
	}
	return p
}

// Scheduler sets leadership, leases and history.
type Scheduler struct {
	// Address of /health, /ready and /metrics of the scheduler's own binary, as host:port. Default "127.0.0.1:4021".
	HealthListen string `key:"health_listen"`
	// How long a leader leads without renewing, in milliseconds. Default 5000; 500 to 60000.
	Lease time.Duration `key:"lease_ms"`
	// How often the leader renews, in milliseconds. On a local store it need not, since no other can lead. Default 1500; 100
	// to half of lease_ms.
	Renew time.Duration `key:"renew_ms"`
	// How long a runner may be out of touch before its attempts count as lost, in milliseconds. Default 15000; at least
	// 2 × lease_ms + 3000, at most 600000.
	RunnerGrace time.Duration `key:"runner_grace_ms"`
	// How much longer than its attempt's time a lease lives, in milliseconds. Default 5000; 1000 to 60000.
	LeaseMargin time.Duration `key:"lease_margin_ms"`
	// Whether what happened to a hook is kept, for look-ups and for the stream of events. Default true.
	History bool `key:"history"`
	// How long it is kept, in hours. Default 168 (7 days); 1 to 8760.
	HistoryRetention time.Duration `key:"history_retention_hours"`
	// Whether the leader collects old versions in TiKV. Default true. False where TiDB or a GC worker shares the
	// cluster.
	GC bool `key:"gc"`
}

// RunnerAcknowledge is how long a runner that stops waits for the leader to acknowledge its last outcomes, after its
// drain.
const RunnerAcknowledge = 5 * time.Second

// Runner sets a process that runs attempts.
type Runner struct {
	// Address of /health, /ready and /metrics of the sink-runner's own binary, as host:port. Default "127.0.0.1:4022".
	HealthListen string `key:"health_listen"`
	// Attempts that a runner takes at once. Default 256; 1 to 65536.
	Slots int `key:"slots"`
	// How long a runner that stops lets its attempts end, in milliseconds. Default 20000; 0 to 600000.
	Drain time.Duration `key:"drain_ms"`
}
