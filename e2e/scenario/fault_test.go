package scenario_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// some is how many acknowledgements show that the product is at work.
const some = 100

// TestI2_NothingAckedIsLostWhenTheOnlyProcessIsKilled: L06, SIGKILL under load, again and again.
func TestI2_NothingAckedIsLostWhenTheOnlyProcessIsKilled(t *testing.T) {
	w := one(t, harness.Options{})
	w.receiver.Behave("/", receiver.After(5*time.Millisecond, receiver.Answer(200)))
	w.send(load.Config{Resend: true})
	for range scaled(3, 20) {
		w.flow(some)
		w.kill(w.cluster.One)
	}
	w.flow(some)
	w.finish()
	w.nobodyDied()
}

// TestI2_NothingAckedIsLostWhenAProcessIsKilled takes each kind of process away in turn, under load.
func TestI2_NothingAckedIsLostWhenAProcessIsKilled(t *testing.T) {
	w := four(t, harness.Options{})
	w.receiver.Behave("/", receiver.After(20*time.Millisecond, receiver.Answer(200)))
	w.send(load.Config{Resend: true})
	for range scaled(1, 5) {
		leader := w.leader()
		for _, p := range []*harness.Process{
			w.cluster.Ingests[0], w.cluster.Runners[0], w.cluster.Schedulers[leader], w.cluster.Schedulers[1-leader],
			w.cluster.Gateway, w.cluster.Ingests[1], w.cluster.Runners[1],
		} {
			w.flow(some)
			w.kill(p)
			w.delivers()
		}
	}
	w.finish()
	w.nobodyDied()
}

// TestI4_ALeaderThatSleptThroughItsLeaseChangesNothing: SIGSTOP past the lease, a successor, SIGCONT.
func TestI4_ALeaderThatSleptThroughItsLeaseChangesNothing(t *testing.T) {
	w := four(t, harness.Options{})
	w.receiver.Behave("/", receiver.After(20*time.Millisecond, receiver.Answer(200)))
	w.send(load.Config{Resend: true})
	for range scaled(2, 10) {
		w.flow(some)
		leader := w.leader()
		w.disturbed(history.LeaderPaused, w.cluster.Schedulers[leader].Name, func() {
			require.NoError(t, w.cluster.Schedulers[leader].Pause(t.Context()))
			successor := w.leader()
			require.NotEqual(t, leader, successor)
			w.delivers()
			require.NoError(t, w.cluster.Schedulers[leader].Resume())
		})
		w.flow(some)
		w.delivers()
	}
	w.finish()
	w.nobodyDied()
}

// TestL03_EveryLoopIsBackAtWorkAfterTheStoreWasAway: nothing is acknowledged meanwhile (L01), no process ends, and
// nobody has to restart one.
func TestL03_EveryLoopIsBackAtWorkAfterTheStoreWasAway(t *testing.T) {
	outage := scaled(8*time.Second, 30*time.Second)
	for name, lose := range map[string]func(w *world){
		"cut":    func(w *world) { w.cluster.Proxy.Cut() },
		"frozen": func(w *world) { w.cluster.Proxy.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			w := four(t, harness.Options{})
			w.send(load.Config{Resend: true})
			w.flow(some)
			lose(w)
			w.disturbed(history.StoreLost, "tikvmock", func() { w.pass(outage) })
			w.cluster.Proxy.Heal()
			w.flow(some)
			w.delivers()
			w.finish()
			w.nobodyDied()
		})
	}
}

func TestTheStoreIsKilledAndOpenedAgain(t *testing.T) {
	w := four(t, harness.Options{})
	w.send(load.Config{Resend: true})
	for range scaled(1, 5) {
		w.flow(some)
		require.NoError(t, w.cluster.Store.Kill())
		w.disturbed(history.StoreLost, "tikvmock", func() { w.pass(2 * time.Second) })
		require.NoError(t, w.cluster.Store.Launch())
		w.flow(some)
		w.delivers()
	}
	w.finish()
	w.nobodyDied()
}

// TestI5_ARollingRestartLosesAndDuplicatesNothing: every process ends by SIGTERM and comes back, under load. No fault is
// recorded, so that nothing excuses a duplicate.
func TestI5_ARollingRestartLosesAndDuplicatesNothing(t *testing.T) {
	t.Run("one process", func(t *testing.T) {
		w := one(t, harness.Options{})
		w.receiver.Behave("/", receiver.After(20*time.Millisecond, receiver.Answer(200)))
		w.send(load.Config{Resend: true})
		for range scaled(2, 10) {
			w.flow(some)
			w.restart(w.cluster.One)
		}
		w.flow(some)
		require.Zero(t, w.finish().Duplicates)
	})
	t.Run("four kinds", func(t *testing.T) {
		w := four(t, harness.Options{})
		w.receiver.Behave("/", receiver.After(20*time.Millisecond, receiver.Answer(200)))
		w.send(load.Config{Resend: true})
		for range scaled(1, 5) {
			for _, p := range w.cluster.All()[1:] {
				w.flow(some)
				w.restart(p)
			}
		}
		w.flow(some)
		require.Zero(t, w.finish().Duplicates)
	})
}

// kill ends a process by SIGKILL and starts it again.
func (w *world) kill(p *harness.Process) {
	w.t.Helper()
	w.disturbed(history.ProcessLost, p.Name, func() {
		require.NoError(w.t, p.Kill())
		ctx, cancel := w.soon()
		defer cancel()
		require.NoError(w.t, p.Start(ctx))
	})
}

func (w *world) restart(p *harness.Process) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(w.t, p.Terminate(ctx))
	require.NoError(w.t, p.Start(ctx))
}

// leader waits until one scheduler leads.
func (w *world) leader() int {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	leader, err := w.cluster.Leader(ctx)
	require.NoError(w.t, err)
	return leader
}

// delivers returns when a hook that is acknowledged from now on has been confirmed: the whole path is at work.
func (w *world) delivers() {
	w.t.Helper()
	w.flow(1)
	acked := w.load.Acked()
	ctx, cancel := w.soon()
	defer cancel()
	last := acked[len(acked)-1:]
	require.NoError(w.t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks(last)) == 0 }), "hook %s", last)
}

// pass lets time go by while the load goes on.
func (w *world) pass(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
}
