package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Rule forbids imports.
type Rule struct {
	Name string
	// Forbids says whether the rule is broken.
	Forbids func(Import) bool
}

// under says whether a package is one of the given ones or below it.
func under(pkg string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return pkg == r || strings.HasPrefix(pkg, r+"/") })
}

func ours(pkg string) bool { return strings.HasPrefix(pkg, module) }

func standard(pkg string) bool {
	first, _, _ := strings.Cut(pkg, "/")
	return !strings.Contains(first, ".")
}

// internal is a package of the services that all of them share.
func internal(names ...string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = module + "services/internal/" + n
	}
	return out
}

// mains are the services' commands.
var mains = []string{
	module + "services/ankusa", module + "services/ingest", module + "services/scheduler",
	module + "services/sinkrunner", module + "services/gateway", module + "services/tikvmock",
}

// measures are the packages of the command that measures which open stores of their own. What mains and they import is
// theirs alone, not that of packages below them.
var measures = internal("benchcmd/bench", "benchcmd/seed")

// bootsRole names the one role that a package makes a part of a process.
var bootsRole = map[string]string{
	module + "services/internal/boot/ingestboot":    module + "services/internal/ingest",
	module + "services/internal/boot/schedulerboot": module + "services/internal/scheduler",
	module + "services/internal/boot/runnerboot":    module + "services/internal/sinkrunner",
	module + "services/internal/boot/gatewayboot":   module + "gateway",
}

// above lists what each layer may import of ours, itself and what is below it excepted. What is not named here is free.
var above = map[string][]string{
	"hook": {}, "kv": internal("hook"), "source": internal("hook"), "egress": {},
	"store":          internal("hook", "kv", "source"),
	"sourcecache":    internal("hook", "source", "store"),
	"scheduler/core": internal("hook"),
	"wire":           append(internal("hook", "source", "store"), module+"proto"),
	"run":            {}, "telemetry": {}, "rpc": internal("run"),
	"config":         internal("hook", "source", "egress"),
	"boot/storeboot": internal("boot", "config", "kv", "store"),
}

// edges may speak gRPC's codes: those of ours, and the driver that speaks to PD.
var edges = append(internal(
	"rpc", "wire", "scheduler", "sinkrunner", "ingest/grpcapi", "ingest/notify", "kv/tikv",
), module+"gateway", module+"proto", module+"e2e")

// domain packages are free of generated protos.
var domain = internal(
	"hook", "kv", "store", "source", "sourcecache", "egress", "config", "run", "rpc", "telemetry",
	"scheduler/core", "ingest/accept", "ingest/verify", "ingest/httpapi",
)

// Rules of the design.
func Rules() []Rule { return slices.Concat(layers(), libraries(), processes(), moduleRules()) }

// libraries says what each package may take from outside.
func libraries() []Rule {
	return []Rule{
		{"hook: the standard library only", func(i Import) bool {
			return !i.Test && under(i.From, internal("hook")...) && !standard(i.To) && !under(i.To, internal("hook")...)
		}},
		{"ferry: no dependency, tests included", func(i Import) bool {
			return under(i.From, module+"ferry") && !standard(i.To) && !under(i.To, module+"ferry")
		}},
		{"client-go below kv/tikv only", func(i Import) bool {
			return (under(i.To, "github.com/tikv/client-go") || under(i.To, "github.com/tikv/pd") || under(i.To, "github.com/pingcap")) &&
				!under(i.From, internal("kv/tikv")...)
		}},
		{"pebble below kv/local only", func(i Import) bool {
			return !i.Test && under(i.To, "github.com/cockroachdb/pebble") && !under(i.From, append(internal("kv/local"), module+"e2e")...)
		}},
		{"gRPC codes at the RPC edge only", func(i Import) bool {
			codes := i.To == "google.golang.org/grpc/codes" || i.To == "google.golang.org/grpc/status"
			inner := under(i.From, internal("scheduler/core", "sinkrunner/httpsink", "sinkrunner/logsink", "sinkrunner/sink")...)
			return codes && !i.Test && (inner || !under(i.From, edges...))
		}},
		{"the domain does not know protos", func(i Import) bool {
			return !i.Test && under(i.To, module+"proto") && under(i.From, domain...) &&
				!under(i.From, internal("source/sourcepb")...)
		}},
	}
}

// processes says how processes are put together.
func processes() []Rule {
	return []Rule{
		{"drivers are chosen in mains and tests", func(i Import) bool {
			drivers := internal("kv/local", "kv/tikv", "boot/tikvboot")
			chooses := slices.Contains(mains, i.From) || slices.Contains(measures, i.From)
			return !i.Test && under(i.To, drivers...) && !chooses && !under(i.From, drivers...)
		}},
		{"boot knows no role and no store", func(i Import) bool {
			return !i.Test && i.From == module+"services/internal/boot" &&
				under(i.To, internal("ingest", "scheduler", "sinkrunner", "store", "kv", "boot")...)
		}},
		{"what boots a role knows no other role", func(i Import) bool {
			for boots, role := range bootsRole {
				others := slices.DeleteFunc(internal("ingest", "scheduler", "sinkrunner"), func(r string) bool { return r == role })
				if !i.Test && i.From == boots && under(i.To, others...) {
					return true
				}
			}
			return false
		}},
		{"only mains and tests boot", func(i Import) bool {
			return !i.Test && under(i.To, internal("boot")...) && !under(i.From, internal("boot")...) && !slices.Contains(mains, i.From)
		}},
		{"roles do not know each other", func(i Import) bool {
			roles := internal("ingest", "scheduler", "sinkrunner")
			return slices.ContainsFunc(roles, func(a string) bool {
				return under(i.From, a) && under(i.To, roles...) && !under(i.To, a)
			})
		}},
	}
}

// moduleRules says which module knows which.
func moduleRules() []Rule {
	return []Rule{
		{"proto, gateway and e2e do not know the services", func(i Import) bool {
			return under(i.From, module+"proto", module+"gateway", module+"e2e") && under(i.To, module+"services")
		}},
		{"proto and gateway know no other module but proto", func(i Import) bool {
			return under(i.From, module+"proto", module+"gateway") && ours(i.To) && !under(i.To, module+"proto", module+"gateway") && !i.Test
		}},
		{"e2e sees generated protos alone", func(i Import) bool {
			return under(i.From, module+"e2e") && ours(i.To) && !under(i.To, module+"e2e", module+"proto/gen")
		}},
		{"nothing imports e2e", func(i Import) bool {
			return under(i.To, module+"e2e") && !under(i.From, module+"e2e")
		}},
	}
}

// layers makes one rule of each entry of above.
func layers() []Rule {
	var rules []Rule
	for layer, allowed := range above {
		self := internal(layer)
		free := append(slices.Clone(self), allowed...)
		rules = append(rules, Rule{layer + " imports only what is below it", func(i Import) bool {
			return !i.Test && under(i.From, self...) && ours(i.To) && !under(i.To, free...) &&
				!under(i.From, internal("source/sourcepb", "kv/kvtest", "kv/faultkv")...)
		}})
	}
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

// Reach lists every package that one gets into its binary, itself included.
func (t Tree) Reach(from string) map[string]bool {
	imports := map[string][]string{}
	for _, i := range t.Imports {
		if !i.Test {
			imports[i.From] = append(imports[i.From], i.To)
		}
	}
	reached, next := map[string]bool{from: true}, []string{from}
	for len(next) > 0 {
		pkg := next[0]
		next = next[1:]
		for _, to := range imports[pkg] {
			if !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	return reached
}

// namesWithoutRole say nothing about what a package is for.
var namesWithoutRole = []string{"util", "utils", "common", "helper", "helpers", "model", "models", "types", "misc", "base"}

// Judge returns every breach, sorted.
func Judge(t Tree, rules []Rule) []string {
	var out []string
	for _, r := range rules {
		for _, i := range t.Imports {
			if r.Forbids(i) {
				out = append(out, fmt.Sprintf("%s: %s imports %s", r.Name, i.From, i.To))
			}
		}
	}
	for path, name := range t.Packages {
		if slices.Contains(namesWithoutRole, name) {
			out = append(out, fmt.Sprintf("packages are named by role: %s is called %s", path, name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
