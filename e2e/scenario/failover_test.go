package scenario_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// TestI5_AChangeOfLeaderLosesAndDuplicatesNothing takes schedulers away under load, while sink-runners and their
// connections to the receiver live on. No fault is recorded, so that nothing excuses a duplicate.
func TestI5_AChangeOfLeaderLosesAndDuplicatesNothing(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the leader is killed again and again": func(w *world) {
			for range scaled(2, 10) {
				w.flow(some)
				p := w.cluster.Schedulers[w.leader()]
				require.NoError(w.t, p.Kill())
				w.delivers()
				w.again(p)
			}
		},
		"all are restarted one after the other": func(w *world) {
			for range scaled(2, 10) {
				for _, p := range w.cluster.Schedulers {
					w.flow(some)
					w.restart(p)
				}
			}
		},
		"all are killed at once": func(w *world) {
			for range scaled(1, 5) {
				w.flow(some)
				for _, p := range w.cluster.Schedulers {
					require.NoError(w.t, p.Kill())
				}
				w.flow(some) // nobody leads, and hooks are accepted
				for _, p := range w.cluster.Schedulers {
					w.again(p)
				}
				w.delivers()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.receiver.Behave("/", receiver.After(20*time.Millisecond, receiver.Answer(200)))
			w.start(harness.Options{Schedulers: 3, Ingests: 1, Runners: 2}, harness.StartFour)
			w.send(load.Config{Resend: true})
			change(w)
			w.flow(some)
			w.delivers()
			require.Zero(t, w.finish().Duplicates)
			w.nobodyDied()
		})
	}
}

// again starts a process that was killed.
func (w *world) again(p *harness.Process) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(w.t, p.Start(ctx))
}
