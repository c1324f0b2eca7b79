package config

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

// roleFaults names what a process of the role lacks.
func (c Config) roleFaults(role Role) []Fault {
	var f faults
	if role == RoleAll {
		return nil
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
