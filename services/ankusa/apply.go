package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/source"
)

func newApply() *cobra.Command {
	var file, server string
	var a applier
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Bring the sources of a server to what a file says", Args: cobra.NoArgs,
		Long: `Apply creates the sources of a file that a server lacks and updates those that differ, through the gateway.
The file has the shape of the configuration; only its sources are read. Secrets cannot be compared, so a source that has
some is always written. Sources that the file does not name stay, unless --prune is given.

Exit codes: 0 done, or nothing to do; 1 a request failed; 2 bad usage; 3 --dry-run found differences; 78 bad file.`,
		RunE: func(c *cobra.Command, _ []string) error {
			sources, err := config.LoadSources(file, config.Environment{})
			if err != nil {
				return err
			}
			if a.api, err = newAPI(server, &http.Client{Timeout: requestTimeout}); err != nil {
				return err
			}
			a.out = c.OutOrStdout()
			return a.apply(c.Context(), sources)
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "file with the sources")
	c.Flags().StringVar(&server, "server", "http://127.0.0.1:4002", "URL of the gateway")
	c.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what would change, and change nothing")
	c.Flags().BoolVar(&a.prune, "prune", false, "delete the sources that the file does not name, of every tenant that it names")
	_ = c.MarkFlagRequired("file") // the flag exists
	return c
}

// requestTimeout bounds one request: a deletion waits until no commit can add a delivery any more.
const requestTimeout = 30 * time.Second

// applier brings sources to a server, one after the other. A failure of one leaves the others to be tried.
type applier struct {
	api           *api
	out           io.Writer
	dryRun, prune bool

	differs, failed bool
}

func (a *applier) apply(ctx context.Context, sources []*source.Source) error {
	for _, s := range sources {
		a.bring(ctx, s)
	}
	if a.prune {
		a.removeOthers(ctx, sources)
	}
	switch {
	case a.failed:
		return exitError(exitFailed)
	case a.dryRun && a.differs:
		return exitError(exitDiffers)
	default:
		return nil
	}
}

func (a *applier) bring(ctx context.Context, s *source.Source) {
	stored, err := a.api.get(ctx, s.Tenant, s.Name)
	switch {
	case err != nil:
		a.fail(s.ID(), err)
	case stored == nil:
		a.change(s.ID(), "+", "create", nil, func() error { return a.api.create(ctx, s) })
	default:
		a.replace(ctx, s, diff(stored.Redacted(), s.Redacted()))
	}
}

func (a *applier) replace(ctx context.Context, s *source.Source, lines []string) {
	switch {
	case len(lines) > 0:
		a.change(s.ID(), "~", "update", lines, func() error { return a.api.update(ctx, s) })
	case !hasSecrets(s):
		a.say("= %s: unchanged", s.ID())
	case a.dryRun:
		a.say("= %s: unchanged, but for the secrets, which cannot be compared", s.ID())
	default:
		a.change(s.ID(), "=", "rewrite, for its secrets", nil, func() error { return a.api.update(ctx, s) })
	}
}

// change does something to a source, or only says so.
func (a *applier) change(id, sign, verb string, details []string, do func() error) {
	a.differs = true
	if !a.dryRun {
		if err := do(); err != nil {
			a.fail(id, fmt.Errorf("%s: %w", verb, err))
			return
		}
	}
	a.say("%s %s: %s", sign, id, verb)
	for _, line := range details {
		a.say("    %s", line)
	}
}

func (a *applier) removeOthers(ctx context.Context, sources []*source.Source) {
	var tenants []string
	named := map[string]bool{}
	for _, s := range sources {
		named[s.ID()] = true
		tenants = append(tenants, s.Tenant)
	}
	slices.Sort(tenants)
	for _, tenant := range slices.Compact(tenants) {
		names, err := a.api.list(ctx, tenant)
		if err != nil {
			a.fail("tenant "+tenant, err)
		}
		for _, name := range names {
			if id := source.ID(tenant, name); !named[id] {
				a.change(id, "-", "delete", nil, func() error { return a.api.remove(ctx, tenant, name) })
			}
		}
	}
}

func (a *applier) fail(id string, err error) {
	a.failed = true
	a.say("! %s: %s", id, err)
}

func (a *applier) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.out, format+"\n", args...)
}

func hasSecrets(s *source.Source) bool {
	if len(s.Verify.Secrets) > 0 {
		return true
	}
	return slices.ContainsFunc(s.Sinks, func(k source.Sink) bool { return len(k.HTTP.Secrets) > 0 || len(k.HTTP.Headers) > 0 })
}
