package scenario_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

func TestWhatProvidersSignIsDeliveredByteForByte(t *testing.T) {
	for name, start := range map[string]func(*testing.T, harness.Options) *world{"one process": one, "four kinds": four} {
		t.Run(name, func(t *testing.T) {
			w := start(t, harness.Options{})
			w.send(load.Config{Workers: 8, Count: scaled(400, 10_000)})
			w.complete()
			report := w.finish()
			require.Equal(t, scaled(400, 10_000), report.Acked)
			require.Equal(t, report.Acked, report.Delivered)
			require.Zero(t, report.Duplicates)
			require.Zero(t, report.Unanswered)
			w.nobodyDied()
		})
	}
}

func TestL09_AHundredEqualEventsAtOnceMakeOneHook(t *testing.T) {
	w := four(t, harness.Options{})
	pay := load.Stripe("pay", stripeSecret)
	same := func(int) (load.Event, error) { return pay(1) }
	w.send(load.Config{Makers: []load.Maker{same}, Workers: 100, Count: 100})
	w.complete()
	report := w.finish()
	require.Equal(t, 1, report.Acked)
	require.Equal(t, 1, w.receiver.Attempts())
}

// TestAReceiverThatMisbehavesGetsEveryHookInTheEnd has one source for each kind of misbehaviour.
func TestAReceiverThatMisbehavesGetsEveryHookInTheEnd(t *testing.T) {
	const each = 12
	ok := receiver.Answer(http.StatusOK)
	behaviours := map[string]receiver.Behaviour{
		"slow":     receiver.After(300*time.Millisecond, ok),
		"fails":    receiver.Script(receiver.Answer(500), receiver.Answer(503), receiver.Answer(409), ok),
		"hangs":    receiver.Script(receiver.Hang(), ok),
		"resets":   receiver.Script(receiver.Reset(), ok),
		"redirect": receiver.Script(receiver.Redirect("/elsewhere"), ok),
		"endless":  receiver.Endless(http.StatusOK),
		"back":     receiver.SendBack(),
		"pauses":   receiver.Script(receiver.RetryAfter(http.StatusTooManyRequests, time.Second), ok),
		"gone":     receiver.Answer(http.StatusGone),
	}
	w := newWorld(t)
	sources := map[string]any{}
	var makers []load.Maker
	for name, behave := range behaviours {
		sources[name] = map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.sink("/" + name)}
		makers = append(makers, load.Plain(name, 500))
		w.receiver.Behave("/"+name, behave)
	}
	w.start(harness.Options{Sources: sources}, harness.StartOne)
	w.send(load.Config{Makers: makers, Workers: 8, Count: each * len(makers)})
	w.complete()
	report := w.finish()
	require.Equal(t, each*len(behaviours), report.Acked)
	require.Equal(t, each, report.Dead, "410 is permanent, all else is not")
	require.Equal(t, each*(len(behaviours)-1), report.Delivered)
	require.Zero(t, report.Duplicates)

	tries := w.attemptsByPath()
	require.Zero(t, tries["/elsewhere"], "L38: a redirect is never followed")
	for path, want := range map[string]int{"/slow": 1, "/fails": 4, "/hangs": 2, "/resets": 2, "/redirect": 2, "/endless": 1, "/back": 1, "/pauses": 2, "/gone": 1} {
		require.Equal(t, want*each, tries[path], path)
	}
}

// TestL23_AttemptsAreCountedUntilTheyEndInADeadLetter compares the listing with what the receiver saw.
func TestL23_AttemptsAreCountedUntilTheyEndInADeadLetter(t *testing.T) {
	w := newWorld(t)
	w.receiver.Behave("/down", receiver.Answer(http.StatusServiceUnavailable))
	w.start(harness.Options{Sources: map[string]any{"down": map[string]any{
		"verify": map[string]any{"type": "none"}, "sinks": w.sink("/down"),
		"retry": map[string]any{"max_attempts": 3, "base_ms": 20},
	}}}, harness.StartOne)
	w.send(load.Config{Makers: []load.Maker{load.Plain("down", 100)}, Workers: 4, Count: 20})
	w.complete()
	require.NoError(t, w.load.Stop())
	dead := w.settle(patience)
	require.Len(t, dead, 20)
	for _, d := range dead {
		require.Equal(t, 3, d.Attempts)
		require.Equal(t, "http: status 503", d.Reason)
		require.Equal(t, "down", d.SourceID)
	}
	require.Equal(t, 60, w.receiver.Attempts())
}

func TestAReceiverThatWasDownGetsWhatWasAcceptedMeanwhile(t *testing.T) {
	w := one(t, harness.Options{})
	require.NoError(t, w.receiver.Down())
	w.send(load.Config{Workers: 8, Count: 200})
	w.complete()
	require.NoError(t, w.receiver.Up())
	report := w.finish()
	require.Equal(t, 200, report.Delivered)
}

// complete returns when a load with a Count has sent everything.
func (w *world) complete() {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(w.t, w.load.Wait(ctx))
}
