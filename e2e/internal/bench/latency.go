package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/e2e/internal/lean"
)

const (
	firstP50  = 3.0  // milliseconds
	firstP99  = 20.0 // milliseconds
	firstRate = 500
	firstTime = 20 * time.Second
)

// firstAttempt measures from the 201 to the arrival of the first attempt.
func firstAttempt(ctx context.Context, g *Rig) (Result, error) {
	var p50, p99 samples
	for i := range g.Repeat {
		lags, err := g.lags(ctx)
		if err != nil {
			return Result{}, err
		}
		p50, p99 = append(p50, percentile(lags, 0.5)), append(p99, percentile(lags, 0.99))
		g.say("  %d of %d: p50 %.3g ms, p99 %.3g ms", i+1, g.Repeat, p50[i], p99[i])
	}
	return Result{
		Bench: "first-attempt", Value: max(p50.median()/firstP50, p99.median()/firstP99), Unit: "figure/bar",
		Against: "nothing", Spread: max(p50.spread(), p99.spread()),
		Limits: g.limits(map[string]any{"rate_per_second": firstRate, "seconds": firstTime.Seconds(), "history": true}),
		Figures: map[string]any{
			"p50_ms": p50.median(), "p99_ms": p99.median(), "bar_p50_ms": firstP50, "bar_p99_ms": firstP99,
		},
	}, nil
}

// lags is one run: a lag for each hook.
func (g *Rig) lags(ctx context.Context) ([]float64, error) {
	f, err := g.plan(ctx, receiverSpec{First: true})
	if err != nil {
		return nil, err
	}
	if err := f.start(ctx, g); err != nil {
		return nil, err
	}
	c, err := g.product(ctx, f.url(), nil)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	lags, err := g.lagsOf(ctx, c.Targets[0], f)
	return lags, errors.Join(closing(err, c), f.close())
}

func (g *Rig) lagsOf(ctx context.Context, target string, f *far) ([]float64, error) {
	warm, err := g.load(ctx, target, lean.Load{Path: path, Rate: firstRate, Count: 2 * firstRate})
	if err != nil {
		return nil, err
	}
	out, err := g.load(ctx, target, lean.Load{Path: path, Rate: firstRate, Count: int(firstRate * firstTime.Seconds()), Times: true})
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := f.until(wait, warm.Accepted+out.Accepted); err != nil {
		return nil, fmt.Errorf("not all was delivered: %w", err)
	}
	return f.lags(ctx, out.Times)
}

// lags are the times from the answers to the hooks' first arrivals, in milliseconds; an arrival that outran its answer
// has none.
func (f *far) lags(ctx context.Context, answers []lean.Answered) ([]float64, error) {
	arrivals, err := f.arrivals(ctx)
	if err != nil {
		return nil, err
	}
	at := make(map[string]time.Time, len(arrivals))
	for _, a := range arrivals {
		at[a.ID] = a.At
	}
	lags := make([]float64, 0, len(answers))
	for _, a := range answers {
		arrived, ok := at[a.ID]
		if !ok {
			return nil, fmt.Errorf("hook %s never arrived", a.ID)
		}
		lags = append(lags, max(0, arrived.Sub(a.At).Seconds()*1000))
	}
	if len(lags) == 0 {
		return nil, errors.New("no answer named a hook")
	}
	return lags, nil
}
