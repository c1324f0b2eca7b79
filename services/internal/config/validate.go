package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Values of http.routing and store.type.
const (
	RoutingPath       = "path"
	RoutingTenantPath = "tenant_path"
	StoreLocal        = "local"
	StoreTiKV         = "tikv"
)

// maxTiKVBody leaves room for headers and rows in a transaction of TiKV, which holds 32 MiB.
const maxTiKVBody = 24 << 20

var (
	slugPattern   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	hostPattern   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})$`)
	prefixPattern = regexp.MustCompile(`^(/|(/[A-Za-z0-9._~-]+)+)$`)
)

// Validate returns an *Error that holds every fault, or nil.
func (c Config) Validate() error {
	if found := c.faults(); len(found) > 0 {
		return &Error{Path: "config", Faults: found}
	}
	return nil
}

func (c Config) faults() []Fault {
	var f faults
	c.Node.check(&f, c.Runner.Drain)
	f.oneOf("log.level", c.Log.Level, "debug", "info", "warning", "error")
	c.HTTP.check(&f)
	f.ip("admin.ip", c.Admin.IP)
	f.between("admin.port", c.Admin.Port, 0, 65535)
	for i, name := range c.Admin.Hosts {
		if !hostPattern.MatchString(name) {
			f.mustBe("admin.hosts."+strconv.Itoa(i), "the name of a host, without a port", quote(name))
		}
	}
	c.Batcher.check(&f, c.HTTP.MaxBodyBytes)
	c.Dispatch.check(&f)
	c.Store.check(&f)
	if c.Store.Type == StoreTiKV && c.HTTP.MaxBodyBytes > maxTiKVBody {
		f.mustBe("http.max_body_bytes", fmt.Sprintf("at most %d where store.type is tikv", maxTiKVBody), c.HTTP.MaxBodyBytes)
	}
	if c.RPC.Listen != "" {
		f.address("rpc.listen", c.RPC.Listen)
	}
	f.between("rpc.max_connections", c.RPC.MaxConnections, 1, 65536)
	f.between("rpc.max_streams", c.RPC.MaxStreams, 16, 65536)
	c.RPC.TLS.check(&f, "rpc.tls")
	f.addresses("peers.scheduler", c.Peers.Scheduler)
	f.addresses("peers.ingest", c.Peers.Ingest)
	c.Scheduler.check(&f)
	c.Runner.check(&f)
	for i, port := range c.Egress.Ports {
		f.between("egress.ports."+strconv.Itoa(i), port, 1, 65535)
	}
	return f.list
}

func (n Node) check(f *faults, drain time.Duration) {
	if !slugPattern.MatchString(n.Instance) {
		f.mustBe("node.instance", "1 to 64 of [A-Za-z0-9_-]", quote(n.Instance))
	}
	f.duration("node.shutdown_timeout_ms", n.ShutdownTimeout, time.Second, 10*time.Minute)
	if least := drain + RunnerAcknowledge; n.ShutdownTimeout < least {
		f.mustBe("node.shutdown_timeout_ms", fmt.Sprintf("at least runner.drain_ms + 5000, which is %d", least.Milliseconds()),
			n.ShutdownTimeout.Milliseconds())
	}
}

func (h HTTP) check(f *faults) {
	if h.IP != "" {
		f.ip("http.ip", h.IP)
	}
	f.between("http.port", h.Port, 0, 65535)
	f.between("http.max_body_bytes", h.MaxBodyBytes, 1, 64<<20)
	f.oneOf("http.routing", h.Routing, RoutingPath, RoutingTenantPath)
	if !prefixPattern.MatchString(h.Prefix) {
		f.mustBe("http.prefix", `"/" or segments of [A-Za-z0-9._~-], each with a slash before it`, quote(h.Prefix))
	}
	f.duration("http.header_timeout_ms", h.HeaderTimeout, 100*time.Millisecond, 10*time.Minute)
	f.duration("http.body_timeout_ms", h.BodyTimeout, 100*time.Millisecond, time.Hour)
	f.between("http.min_body_rate", h.MinBodyRate, 0, 64<<20)
	f.duration("http.idle_timeout_ms", h.IdleTimeout, time.Second, time.Hour)
	f.between("http.max_connections", h.MaxConnections, 1, 1_000_000)
}

func (b Batcher) check(f *faults, maxBody int) {
	f.between("batcher.max_batch", b.MaxBatch, 1, 4096)
	f.duration("batcher.max_delay_ms", b.MaxDelay, 0, time.Second)
	f.from64("batcher.max_queue", int64(b.MaxQueue), "max_batch", int64(b.MaxBatch), 1_000_000)
	f.from64("batcher.max_queue_bytes", b.MaxQueueBytes, "http.max_body_bytes", int64(maxBody), 64<<30)
}

func (d Dispatch) check(f *faults) {
	f.between("dispatch.batch", d.Batch, 1, 4096)
	f.optional("dispatch.concurrency", d.Concurrency, 1, 1_000_000)
	f.between("dispatch.max_inflight", d.MaxInflight, 1, 1_000_000)
	f.between64("dispatch.max_inflight_bytes", d.MaxInflightBytes, 1, 64<<30)
	f.duration("dispatch.attempt_timeout_ms", d.AttemptTimeout, 100*time.Millisecond, time.Hour)
	f.optional("dispatch.sink_concurrency", d.SinkConcurrency, 1, 1_000_000)
	f.between("dispatch.breaker_failures", d.BreakerFailures, 0, 1_000_000)
	f.duration("dispatch.breaker_open_ms", d.BreakerOpen, time.Millisecond, 24*time.Hour)
	f.durationFrom("dispatch.breaker_max_open_ms", d.BreakerMaxOpen, "breaker_open_ms", d.BreakerOpen, 24*time.Hour)
	f.duration("dispatch.max_retry_after_ms", d.MaxRetryAfter, time.Second, 24*time.Hour)
	f.duration("dispatch.retry.base_ms", d.Retry.Base, time.Millisecond, 24*time.Hour)
	f.durationFrom("dispatch.retry.max_ms", d.Retry.Max, "base_ms", d.Retry.Base, 24*time.Hour)
	f.optional("dispatch.retry.max_attempts", d.Retry.MaxAttempts, 1, 1_000_000)
	f.duration("dispatch.retry.max_elapsed_ms", d.Retry.MaxElapsed, time.Second, 30*24*time.Hour)
	for _, tenant := range slices.Sorted(maps.Keys(d.Tenants)) {
		d.Tenants[tenant].check(f, tenant)
	}
}

func (l TenantLimits) check(f *faults, tenant string) {
	path := join("dispatch.tenants", tenant)
	if !slugPattern.MatchString(tenant) {
		f.mustBe(path, `a tenant's id or "default"`, quote(tenant))
	}
	f.optional(path+".max_inflight", l.MaxInflight, 1, 1_000_000)
	if l.MaxInflightBytes != nil {
		f.between64(path+".max_inflight_bytes", *l.MaxInflightBytes, 1, 64<<30)
	}
	f.optional(path+".concurrency", l.Concurrency, 1, 1_000_000)
}

func (s Store) check(f *faults) {
	f.oneOf("store.type", s.Type, StoreLocal, StoreTiKV)
	f.between("store.partitions", s.Partitions, 1, 253)
	f.addresses("store.pd", s.PD)
	if !slugPattern.MatchString(s.KeyPrefix) {
		f.mustBe("store.key_prefix", "1 to 64 of [A-Za-z0-9_-]", quote(s.KeyPrefix))
	}
	f.duration("store.patience_ms", s.Patience, 100*time.Millisecond, time.Minute)
	s.TLS.check(f, "store.tls")
	if s.Type == StoreTiKV && len(s.PD) == 0 {
		f.mustBe("store.pd", "at least one address where store.type is tikv", "none")
	}
	if s.Type == StoreLocal {
		s.checkLocal(f)
	}
}

// checkLocal refuses what would have no meaning.
func (s Store) checkLocal(f *faults) {
	if len(s.PD) > 0 {
		f.mustBe("store.pd", "empty where store.type is local", len(s.PD))
	}
	if s.KeyPrefix != defaultStore().KeyPrefix {
		f.mustBe("store.key_prefix", "absent where store.type is local", quote(s.KeyPrefix))
	}
	if s.Patience != defaultStore().Patience {
		f.mustBe("store.patience_ms", "absent where store.type is local", s.Patience.Milliseconds())
	}
	if s.TLS.Enabled() {
		f.mustBe("store.tls", "absent where store.type is local", "a mapping")
	}
	if s.Dir == "" {
		f.mustBe("store.dir", "a directory where store.type is local", `""`)
	}
}

func (t TLS) check(f *faults, path string) {
	if !t.Enabled() {
		return
	}
	for _, given := range []struct{ key, file string }{{"cert", t.Cert}, {"key", t.Key}, {"ca", t.CA}} {
		if given.file == "" {
			f.mustBe(path+"."+given.key, "given, as cert, key and ca belong together", `""`)
		}
	}
}

func (s Scheduler) check(f *faults) {
	f.address("scheduler.health_listen", s.HealthListen)
	f.duration("scheduler.lease_ms", s.Lease, 500*time.Millisecond, time.Minute)
	f.checkRenew(s.Renew, s.Lease)
	if least := 2*s.Lease + 3*time.Second; s.RunnerGrace < least {
		f.mustBe("scheduler.runner_grace_ms", fmt.Sprintf("at least 2 × lease_ms + 3000, which is %d", least.Milliseconds()),
			s.RunnerGrace.Milliseconds())
	}
	f.duration("scheduler.runner_grace_ms", s.RunnerGrace, 0, 10*time.Minute)
	f.duration("scheduler.lease_margin_ms", s.LeaseMargin, time.Second, time.Minute)
	f.duration("scheduler.history_retention_hours", s.HistoryRetention, time.Hour, 365*24*time.Hour)
}

// checkRenew says nothing of a lease that is at fault itself.
func (f *faults) checkRenew(renew, lease time.Duration) {
	const least = 100 * time.Millisecond
	if most := lease / 2; renew < least || renew > most && most >= least {
		f.mustBe("scheduler.renew_ms", fmt.Sprintf("%d to half of lease_ms, which is %d", least.Milliseconds(), lease.Milliseconds()),
			renew.Milliseconds())
	}
}

func (r Runner) check(f *faults) {
	f.address("runner.health_listen", r.HealthListen)
	f.between("runner.slots", r.Slots, 1, 65536)
	f.duration("runner.drain_ms", r.Drain, 0, 10*time.Minute)
}

func (f *faults) between(key string, got, least, most int) {
	f.between64(key, int64(got), int64(least), int64(most))
}

func (f *faults) between64(key string, got, least, most int64) {
	if got < least || got > most {
		f.mustBe(key, fmt.Sprintf("%d to %d", least, most), got)
	}
}

// from64 bounds a value from below by another key's. Where that is at fault itself, only what holds in any case is said.
func (f *faults) from64(key string, got int64, other string, least, most int64) {
	if least < 1 || least > most {
		f.between64(key, got, 1, most)
		return
	}
	if got < least || got > most {
		f.mustBe(key, fmt.Sprintf("%s, which is %d, to %d", other, least, most), got)
	}
}

func (f *faults) durationFrom(key string, got time.Duration, other string, least, most time.Duration) {
	unit := Unit(key)
	f.from64(key, int64(got/unit), other, int64(least/unit), int64(most/unit))
}

func (f *faults) optional(key string, got *int, least, most int) {
	if got != nil {
		f.between(key, *got, least, most)
	}
}

func (f *faults) duration(key string, got, least, most time.Duration) {
	unit := Unit(key)
	f.between64(key, int64(got/unit), int64(least/unit), int64(most/unit))
}

func (f *faults) oneOf(key, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		f.mustBe(key, "one of "+list(allowed), quote(got))
	}
}

func list(words []string) string {
	out := words[0]
	for _, w := range words[1:] {
		out += ", " + w
	}
	return out
}

func (f *faults) ip(key, got string) {
	if _, err := netip.ParseAddr(got); err != nil {
		f.mustBe(key, "an IP address", quote(got))
	}
}

func (f *faults) address(key, got string) {
	_, port, err := net.SplitHostPort(got)
	number, numberErr := strconv.Atoi(port)
	if err != nil || numberErr != nil || number < 0 || number > 65535 || strconv.Itoa(number) != port {
		f.mustBe(key, "host:port", quote(got))
	}
}

func (f *faults) addresses(key string, got []string) {
	for i, address := range got {
		f.address(key+"."+strconv.Itoa(i), address)
	}
}
