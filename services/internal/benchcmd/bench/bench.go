// Package bench measures what the scheduler promises in figures and only its inside shows: what a row costs it, and what
// it does with many of them.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"ankusa.dev/services/internal/benchcmd/figure"
)

type benchmark struct {
	name string
	run  func(context.Context, *Rig) (figure.Result, error)
}

// all in the order in which they run.
func all() []benchmark {
	return []benchmark{
		{"claim-settle", claimSettle},
		{"idle-tenants", idleTenants},
		{"backlog", backlog},
		{"tombstones", tombstones},
		{"parked", parked},
		{"takeover", takeover},
		{"lanes", lanes},
		{"round-trips", roundTrips},
	}
}

// Names of all benchmarks.
func Names() []string {
	var names []string
	for _, b := range all() {
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
	for _, b := range all() {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		g.say("%s", b.name)
		result, err := b.run(ctx, g)
		if err == nil {
			result.Bench = b.name
			err = json.NewEncoder(out).Encode(result)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
		}
	}
	return errors.Join(errs...)
}
