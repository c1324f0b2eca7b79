package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
	"ankusa.dev/e2e/internal/receiver"
)

// party is a tenant with a source and a receiver of its own.
type party struct {
	tenant string
	rate   float64
	far    receiverSpec
}

// street is a product with two tenants: the lags of one are measured, the other is in its way.
type street struct {
	measured, other party
	// lead is how long the other's load runs before the measured one's begins.
	lead     time.Duration
	settings harness.Settings
}

// warmUp is the time of the load that goes before the one that is measured.
const warmUp = 2 * time.Second

// seen is what one run showed.
type seen struct {
	lags []float64 // milliseconds, of the measured tenant
	// inflight is the most rows that the other tenant was seen to hold.
	inflight int
}

// measure runs the measured tenant for a time, alone or beside the other, on a fresh product.
func (s *street) measure(ctx context.Context, g *Rig, d time.Duration, alone bool) (seen, error) {
	near, err := g.plan(ctx, s.measured.far)
	if err == nil {
		err = near.start(ctx, g)
	}
	if err != nil {
		return seen{}, err
	}
	far, err := g.plan(ctx, s.other.far)
	if err == nil {
		err = far.start(ctx, g)
	}
	if err != nil {
		return seen{}, errors.Join(err, near.close())
	}
	c, err := g.tenants(ctx, s, near.url(), far.url())
	if err != nil {
		return seen{}, errors.Join(err, near.close(), far.close())
	}
	out, err := s.run(ctx, g, c, near, d, alone)
	return out, errors.Join(closing(err, c), near.close(), far.close())
}

// tenants starts the one-process binary with a source for each tenant.
func (g *Rig) tenants(ctx context.Context, s *street, near, far string) (*harness.Cluster, error) {
	dir, err := g.place("product")
	if err != nil {
		return nil, err
	}
	settings := harness.Settings{"http.routing": "tenant_path"}
	for key, value := range s.settings {
		settings[key] = value
	}
	c, err := harness.StartOne(ctx, harness.Options{
		Bin: g.Bin, Dir: dir, Settings: settings,
		Sources: map[string]any{s.measured.tenant: shared(near), s.other.tenant: shared(far)},
	})
	if err != nil {
		return nil, closing(err, c)
	}
	return c, nil
}

// shared is a source of any tenant that takes everything and delivers it to url.
func shared(url string) map[string]any {
	return map[string]any{
		"verify": map[string]any{"type": "none"}, "trust_url_tenant": true,
		"sinks": []any{map[string]any{"type": "http", "url": url, "secret": receiver.Secret}},
	}
}

func (p *party) path() string { return "/webhooks/" + p.tenant + "/" + p.tenant }

func (s *street) run(ctx context.Context, g *Rig, c *harness.Cluster, near *far, d time.Duration, alone bool) (seen, error) {
	beside := make(chan error, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	peak := make(chan int, 1)
	if alone {
		beside <- nil
		peak <- 0
	} else {
		go func() { beside <- s.crowd(ctx, g, c, s.lead+warmUp+d) }()
		go func() { peak <- watchInflight(watching, c.Metrics[c.One.Name], s.other.tenant) }()
		if err := wait(ctx, s.lead); err != nil {
			return seen{}, errors.Join(err, <-beside)
		}
	}
	lags, err := s.lags(ctx, g, c, near, d)
	err = errors.Join(err, <-beside)
	stop()
	return seen{lags, <-peak}, err
}

// crowd is the other tenant's load.
func (s *street) crowd(ctx context.Context, g *Rig, c *harness.Cluster, d time.Duration) error {
	out, err := g.load(ctx, c.Targets[0], lean.Load{Path: s.other.path(), Rate: s.other.rate, Duration: d})
	if err != nil {
		return err
	}
	if want := s.other.rate * d.Seconds(); float64(out.Accepted) < 0.95*want {
		return fmt.Errorf("of the tenant %s only %d hooks of %.0f were accepted", s.other.tenant, out.Accepted, want)
	}
	return nil
}

func (s *street) lags(ctx context.Context, g *Rig, c *harness.Cluster, near *far, d time.Duration) ([]float64, error) {
	of := func(d time.Duration, times bool) (lean.Outcome, error) {
		return g.load(ctx, c.Targets[0], lean.Load{
			Path: s.measured.path(), Rate: s.measured.rate, Count: int(s.measured.rate * d.Seconds()), Times: times,
		})
	}
	before, err := of(warmUp, false)
	if err != nil {
		return nil, err
	}
	out, err := of(d, true)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := near.until(soon, before.Accepted+out.Accepted); err != nil {
		return nil, fmt.Errorf("not all was delivered: %w", err)
	}
	return near.lags(ctx, out.Times)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watchInflight is the most claimed rows that a tenant was seen with until ctx ended; -1 where it was never seen.
func watchInflight(ctx context.Context, url, tenant string) int {
	most := -1
	for wait(ctx, 100*time.Millisecond) == nil {
		samples, err := harness.Scrape(ctx, url)
		if err != nil {
			continue // the last one is cut off by the end
		}
		for _, s := range samples {
			if s.Name == "ankusa_dispatch_tenant_inflight" && s.Labels["tenant"] == tenant {
				most = max(most, int(s.Value))
			}
		}
	}
	return most
}
