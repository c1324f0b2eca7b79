package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

type benchmark struct {
	name string
	run  func(context.Context, *Rig) (Result, error)
}

// all in the order in which they run.
var all = []benchmark{
	{"accept", accept},
	{"deliver", deliver},
	{"first-attempt", firstAttempt},
	{"drain", drain},
	{"idle", idle},
	{"history", history},
	{"fairness", fairness},
	{"victim", victim},
	{"failover", failover},
}

// Names of all benchmarks.
func Names() []string {
	var names []string
	for _, b := range all {
		names = append(names, b.name)
	}
	return names
}

// Run runs the named benchmarks, or all, and writes one line of JSON for each. One that fails does not keep the others
// from running.
func Run(ctx context.Context, g *Rig, names []string, out io.Writer) error {
	var errs []error
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			errs = append(errs, fmt.Errorf("no benchmark is called %q: there are %q", name, Names()))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if g.wanted = names; len(names) == 0 {
		g.wanted = Names()
	}
	for _, b := range all {
		if !g.wants(b.name) {
			continue
		}
		g.say("%s", b.name)
		began := time.Now()
		result, err := b.run(ctx, g)
		g.say("  %.0f s", time.Since(began).Seconds())
		if err == nil {
			err = json.NewEncoder(out).Encode(result)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return errors.Join(errs...)
}
