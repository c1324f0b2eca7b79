package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Limits bound what one tenant holds.
type Limits struct {
	MaxInflight      int   // claimed rows
	MaxInflightBytes int64 // bytes of their hooks; a larger hook runs alone
	Concurrency      int   // attempts at once; 0 is half of the global value, at least 1
}

// Config is what an operator sets. Configure replaces it, all but Batching.
type Config struct {
	Batch            int // rows that a scan asks for, and that are enough for a settle
	MaxInflight      int
	MaxInflightBytes int64
	Concurrency      int // attempts at once; 0 is what the runners can take
	SinkConcurrency  int // attempts at once per sink key; 0 is no cap
	// Batching sink types wait for their batch's answer, and are not held to any of the three: windows and the runners'
	// credit bound them. A fact of the types, it is read once for each key: attempts end as what they were begun as.
	Batching       map[string]bool
	AttemptTimeout time.Duration
	LeaseMargin    time.Duration // by which a lease outlives the attempt's time-out
	Grace          time.Duration // for a lost runner to come back
	Breakers       Breakers
	Default        Limits
	Tenants        map[string]Limits
}

// Validate returns every fault of the settings that a term could not work with, each with its key in the configuration file.
func (c Config) Validate() error {
	var faults []error
	least := func(key string, value, least int64) {
		if value < least {
			faults = append(faults, fmt.Errorf("%s must be at least %d, got %d", key, least, value))
		}
	}
	least("dispatch.batch", int64(c.Batch), 1)
	least("dispatch.max_inflight", int64(c.MaxInflight), 1)
	least("dispatch.max_inflight_bytes", c.MaxInflightBytes, 1)
	least("dispatch.concurrency", int64(c.Concurrency), 0)
	least("dispatch.sink_concurrency", int64(c.SinkConcurrency), 0)
	least("dispatch.attempt_timeout_ms", c.AttemptTimeout.Milliseconds(), 1)
	least("dispatch.breaker_failures", int64(c.Breakers.Failures), 0)
	least("scheduler.lease_margin_ms", c.LeaseMargin.Milliseconds(), 0)
	least("scheduler.runner_grace_ms", c.Grace.Milliseconds(), 0)
	if c.Breakers.Failures > 0 {
		least("dispatch.breaker_open_ms", c.Breakers.Open.Milliseconds(), 1)
		least("dispatch.breaker_max_open_ms", c.Breakers.MaxOpen.Milliseconds(), c.Breakers.Open.Milliseconds())
	}
	limits := func(tenant string, l Limits) {
		least("dispatch.tenants."+tenant+".max_inflight", int64(l.MaxInflight), 1)
		least("dispatch.tenants."+tenant+".max_inflight_bytes", l.MaxInflightBytes, 1)
		least("dispatch.tenants."+tenant+".concurrency", int64(l.Concurrency), 0)
	}
	limits("default", c.Default)
	for _, tenant := range slices.Sorted(maps.Keys(c.Tenants)) {
		limits(tenant, c.Tenants[tenant])
	}
	return errors.Join(faults...)
}
