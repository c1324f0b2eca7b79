package config

import (
	"net"
	"strconv"
	"strings"
)

// Role is what a process does.
type Role string

// The roles. RoleAll is the one-process binary's.
const (
	RoleAll        Role = "all"
	RoleIngest     Role = "ingest"
	RoleScheduler  Role = "scheduler"
	RoleSinkRunner Role = "sink-runner"
	RoleGateway    Role = "gateway"
)

// roleFaults names what a process of the role lacks, and its listeners that are in each other's way.
func (c Config) roleFaults(role Role) []Fault {
	var f faults
	f.apart(c.listeners(role))
	if role == RoleAll {
		return f.list
	}
	if c.Store.Type == StoreLocal {
		f.mustBe("store.type", "tikv for the "+string(role)+" process, as the local store serves one process only",
			quote(c.Store.Type))
	}
	if role != RoleScheduler && len(c.Peers.Scheduler) == 0 {
		f.mustBe("peers.scheduler", "at least one address for the "+string(role)+" process", "none")
	}
	return f.list
}

// listener is an address that a process binds to, by the key that names its port.
type listener struct{ key, host, port string }

func (c Config) listeners(role Role) []listener {
	var all []listener
	add := func(key, address string) {
		if host, port, err := net.SplitHostPort(address); err == nil {
			all = append(all, listener{key, host, port})
		}
	}
	if role == RoleAll || role == RoleIngest {
		all = append(all, listener{"http.port", c.HTTP.IP, strconv.Itoa(c.HTTP.Port)})
	}
	if role == RoleGateway || role == RoleAll && c.Admin.Enabled {
		all = append(all, listener{"admin.port", c.Admin.IP, strconv.Itoa(c.Admin.Port)})
	}
	add("rpc.listen", c.ListenRPC(role))
	if role == RoleScheduler {
		add("scheduler.health_listen", c.Scheduler.HealthListen)
	}
	if role == RoleSinkRunner {
		add("runner.health_listen", c.Runner.HealthListen)
	}
	return all
}

// apart finds listeners that would bind to one port.
func (f *faults) apart(all []listener) {
	for i, l := range all {
		for _, before := range all[:i] {
			if l.port == before.port && l.port != "0" && meet(l.host, before.host) {
				f.mustBe(l.key, "another port than "+before.key+" at the same address", l.port)
			}
		}
	}
}

// meet says whether two hosts have an address in common, as far as it can be told without the network.
func meet(a, b string) bool {
	a, b = address(a), address(b)
	everywhere := func(host string) bool { return host == "" || host == "::" }
	return a == b || everywhere(a) || everywhere(b) || a == "0.0.0.0" && !strings.Contains(b, ":") || b == "0.0.0.0" && !strings.Contains(a, ":")
}

func address(host string) string {
	if host = strings.ToLower(host); host == "localhost" {
		return "127.0.0.1"
	}
	return host
}

// ListenRPC is the address that a process of the role serves gRPC on, or empty for none.
func (c Config) ListenRPC(role Role) string {
	switch {
	case role != RoleAll && role != RoleIngest && role != RoleScheduler:
		return ""
	case c.RPC.Listen != "" || role == RoleAll:
		return c.RPC.Listen
	case role == RoleIngest:
		return "127.0.0.1:4010"
	default:
		return "127.0.0.1:4011"
	}
}
