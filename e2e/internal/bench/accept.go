package bench

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

const (
	acceptBar  = 0.6
	acceptWarm = 2 * time.Second
	acceptTime = 8 * time.Second
)

// accept compares accepted hooks per second with a handler that commits each hook as one synced key.
func accept(ctx context.Context, g *Rig) (Result, error) {
	ours, theirs, err := g.interleave(ctx, g.acceptProduct, g.acceptBare)
	if err != nil {
		return Result{}, err
	}
	ratio := ours.median() / theirs.median()
	return Result{
		Bench: "accept", Value: acceptBar / ratio, Unit: "bar/figure",
		Against: "a net/http handler that commits each encoded hook as one key with pebble.Sync",
		Spread:  max(ours.spread(), theirs.spread()),
		Limits:  g.limits(map[string]any{"roles": "ingest", "verify": "none", "seconds": acceptTime.Seconds()}),
		Figures: map[string]any{
			"accepted_per_second": ours.median(), "bare_per_second": theirs.median(), "ratio": ratio, "bar_at_least": acceptBar,
		},
	}, nil
}

// acceptProduct runs ingest alone, on a store that a whole product has put the source into.
func (g *Rig) acceptProduct(ctx context.Context) (float64, error) {
	dir, err := g.place("accept")
	if err != nil {
		return 0, err
	}
	o := harness.Options{Bin: g.Bin, Dir: dir, Sources: source("http://127.0.0.1:9/")}
	whole, err := harness.StartOne(ctx, o)
	if err == nil {
		err = whole.One.Terminate(ctx)
	}
	if err != nil {
		return 0, closing(err, whole)
	}
	o.Args = []string{"--roles", "ingest"}
	c, err := harness.StartOne(ctx, o)
	if err != nil {
		return 0, closing(err, c)
	}
	rate, err := g.acceptRate(ctx, c.Targets[0])
	return rate, closing(err, c)
}

func (g *Rig) acceptBare(ctx context.Context) (float64, error) {
	dir, err := g.place("accept-bare")
	if err != nil {
		return 0, err
	}
	port, err := harness.FreePort(ctx)
	if err != nil {
		return 0, err
	}
	base := "http://" + harness.Address(port)
	p, err := g.start(ctx, childStore, base+"/ready", serverSpec{Listen: harness.Address(port), Dir: filepath.Join(dir, "store")})
	if err != nil {
		return 0, err
	}
	rate, err := g.acceptRate(ctx, base)
	return rate, errors.Join(err, p.Close())
}

func (g *Rig) acceptRate(ctx context.Context, target string) (float64, error) {
	if _, err := g.load(ctx, target, lean.Load{Path: path, Duration: acceptWarm}); err != nil {
		return 0, err
	}
	out, err := g.load(ctx, target, lean.Load{Path: path, Duration: acceptTime})
	return float64(out.Accepted) / out.Elapsed.Seconds(), err
}

// closing ends a cluster where there is one.
func closing(err error, c *harness.Cluster) error {
	if c == nil {
		return err
	}
	return errors.Join(err, c.Close())
}
