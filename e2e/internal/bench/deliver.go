package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/lean"
)

const (
	deliverBar = 0.5
	// steadyFor is how long a rate must be kept up, steadyLeft how much load may then be left behind.
	steadyFor  = 30 * time.Second
	steadyLeft = time.Second
	// steadyStep is the resolution of the search.
	steadyStep = 1.03
	// deliverSlots is the number of attempts at once.
	deliverSlots = 64
)

// deliver compares the highest steady rate from request to receiver with a relay that has no store.
func deliver(ctx context.Context, g *Rig) (Result, error) {
	rates, err := g.steadyRates(ctx, sideProduct, sideBare)
	if err != nil {
		return Result{}, err
	}
	a, b := rates[sideProduct], rates[sideBare]
	ratio := a.median() / b.median()
	return Result{
		Bench: "deliver", Value: deliverBar / ratio, Unit: "bar/figure",
		Against: "a net/http handler that posts the body on to the same receiver before it answers, without a store",
		Spread:  max(a.spread(), b.spread()), Limits: g.limits(deliverLimits()),
		Figures: map[string]any{
			"delivered_per_second": a.median(), "bare_per_second": b.median(), "ratio": ratio, "bar_at_least": deliverBar,
		},
	}, nil
}

func deliverLimits() map[string]any {
	return map[string]any{
		"seconds": steadyFor.Seconds(), "left_behind_seconds": steadyLeft.Seconds(), "search_step": steadyStep,
		"history": true, "settings": raised(deliverSlots),
	}
}

// history prints what the history and the events cost: no bar.
func history(ctx context.Context, g *Rig) (Result, error) {
	rates, err := g.steadyRates(ctx, sideProduct, sideWithout)
	if err != nil {
		return Result{}, err
	}
	a, b := rates[sideProduct], rates[sideWithout]
	limits := deliverLimits()
	limits["history"] = "true and false"
	return Result{
		Bench: "history", Value: b.median() / a.median(), Unit: "without/with", Against: "the same without history and events",
		Spread: max(a.spread(), b.spread()), Limits: g.limits(limits),
		Figures: map[string]any{"with_per_second": a.median(), "without_per_second": b.median()},
	}, nil
}

// The sides whose highest steady rates are compared.
const (
	sideProduct = "product"
	sideBare    = "bare relay"
	sideWithout = "product without history"
)

// steadyRates finds the rates of some sides in turns. Each is found once: deliver and history share the product's, and
// where both run, all three sides take turns.
func (g *Rig) steadyRates(ctx context.Context, sides ...string) (map[string]samples, error) {
	if !slices.ContainsFunc(sides, func(s string) bool { return g.steady[s] == nil }) {
		return g.steady, nil
	}
	if g.wants("deliver") && g.wants("history") {
		sides = []string{sideProduct, sideBare, sideWithout}
	}
	trials := map[string]trial{
		sideProduct: g.deliverProduct(nil), sideBare: g.deliverBare,
		sideWithout: g.deliverProduct(harness.Settings{"scheduler.history": false}),
	}
	var searches []measure
	for _, side := range sides {
		searches = append(searches, (&search{rig: g, name: side, try: trials[side]}).next)
	}
	found, err := g.turns(ctx, searches...)
	if err != nil {
		return nil, err
	}
	g.steady = map[string]samples{}
	for i, side := range sides {
		g.steady[side] = found[i]
	}
	return g.steady, nil
}

// trial offers a rate for a time and returns how many of the offered hooks had reached the receiver at its end.
type trial func(ctx context.Context, rate float64, d time.Duration) (arrived int, err error)

// search finds the highest rate that is kept up. It begins where it ended the last time.
type search struct {
	rig  *Rig
	name string
	try  trial
	rate float64
}

func (s *search) next(ctx context.Context) (float64, error) {
	if s.rate == 0 {
		// Overload tells the order of magnitude.
		arrived, err := s.try(ctx, 0, 6*time.Second)
		if err != nil {
			return 0, err
		}
		s.rate = 0.8 * float64(arrived) / 6
		if err := s.approach(ctx); err != nil {
			return 0, err
		}
	}
	from := s.rate
	at := func(step int) float64 { return from * math.Pow(steadyStep, float64(step)) }
	step, err := lastKept(func(step int) (bool, error) {
		s.rate = at(step)
		return s.keeps(ctx, steadyFor)
	})
	s.rate = at(step)
	return s.rate, err
}

// lastKept finds a step that is kept up before one that is not, from step 0 on: by jumps that double, then by halves.
func lastKept(keeps func(step int) (bool, error)) (int, error) {
	first, err := keeps(0)
	kept, not := 0, 0
	for jump, found := 1, false; err == nil && !found; jump *= 2 {
		next := kept + jump
		if !first {
			next = not - jump
		}
		var ok bool
		ok, err = keeps(next)
		if found = ok != first; ok {
			kept = next
		} else {
			not = next
		}
	}
	for err == nil && not-kept > 1 {
		var ok bool
		middle := kept + (not-kept)/2
		if ok, err = keeps(middle); ok {
			kept = middle
		} else {
			not = middle
		}
	}
	return kept, err
}

// approach comes near the rate by short trials and large steps.
func (s *search) approach(ctx context.Context) error {
	const (
		most = 8
		step = 1.2
	)
	for range most {
		s.rate *= step
		kept, err := s.keeps(ctx, steadyFor/4)
		if err != nil {
			return err
		}
		if !kept {
			s.rate /= step
			return nil
		}
	}
	return nil
}

// keeps says whether a rate is kept up for a time, of which only a share of the load may be left behind.
func (s *search) keeps(ctx context.Context, d time.Duration) (bool, error) {
	arrived, err := s.try(ctx, s.rate, d)
	left := s.rate*d.Seconds() - float64(arrived)
	kept := left <= s.rate*steadyLeft.Seconds()*d.Seconds()/steadyFor.Seconds()
	s.rig.say("    %s at %.5g per second for %s: %.2f s of load left behind", s.name, s.rate, d, left/s.rate)
	return kept, err
}

// deliverProduct tries on a fresh product each time.
func (g *Rig) deliverProduct(more harness.Settings) trial {
	return func(ctx context.Context, rate float64, d time.Duration) (int, error) {
		f, err := g.plan(ctx, receiverSpec{})
		if err != nil {
			return 0, err
		}
		if err := f.start(ctx, g); err != nil {
			return 0, err
		}
		s := raised(deliverSlots)
		for key, value := range more {
			s[key] = value
		}
		c, err := g.product(ctx, f.url(), s)
		if err != nil {
			return 0, errors.Join(err, f.close())
		}
		arrived, err := g.offer(ctx, c.Targets[0], f, rate, d)
		return arrived, errors.Join(closing(err, c), f.close())
	}
}

func (g *Rig) deliverBare(ctx context.Context, rate float64, d time.Duration) (int, error) {
	f, err := g.plan(ctx, receiverSpec{})
	if err != nil {
		return 0, err
	}
	if err := f.start(ctx, g); err != nil {
		return 0, err
	}
	port, err := harness.FreePort(ctx)
	if err != nil {
		return 0, errors.Join(err, f.close())
	}
	base := "http://" + harness.Address(port)
	p, err := g.start(ctx, childRelay, base+"/ready", serverSpec{Listen: harness.Address(port), To: f.url(), Conns: conns})
	if err != nil {
		return 0, errors.Join(err, f.close())
	}
	arrived, err := g.offer(ctx, base, f, rate, d)
	return arrived, errors.Join(err, p.Close(), f.close())
}

func (g *Rig) offer(ctx context.Context, target string, f *far, rate float64, d time.Duration) (int, error) {
	if _, err := g.load(ctx, target, lean.Load{Path: path, Rate: rate, Duration: d}); err != nil {
		return 0, err
	}
	return f.count(ctx)
}
