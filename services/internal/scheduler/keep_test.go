package scheduler

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/store"
)

// stuckSystem is a system whose store does not answer the calls that hang says, from the moment it is set.
func stuckSystem(t *testing.T) (s *system, hang *atomic.Pointer[func(faultkv.Call) bool]) {
	hang = &atomic.Pointer[func(faultkv.Call) bool]{}
	s = faultySystem(t, func(c faultkv.Call) faultkv.Fault {
		if stuck := hang.Load(); stuck != nil && (*stuck)(c) {
			return faultkv.Fault{Latency: 24 * time.Hour}
		}
		return faultkv.Fault{}
	})
	return s, hang
}

func TestL03_HousekeepingThatTheStoreDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hang := stuckSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		synctest.Wait()
		term, id := n.term.Load(), random16()
		for what, do := range map[string]func(context.Context) error{
			"sweep":  func(ctx context.Context) error { return term.sweep(ctx, term.clock.now()) },
			"drop":   func(ctx context.Context) error { return term.drop(ctx, term.clock.now()) },
			"forget": func(ctx context.Context) error { return removeRunner(ctx, term.leader, id) },
			"fold":   func(ctx context.Context) error { return term.writers.foldOne(ctx, id) },
			"look":   func(ctx context.Context) error { _, err := term.writers.read(ctx); return err },
		} {
			stuck := func(c faultkv.Call) bool { return mine(c, id, what) }
			hang.Store(&stuck)
			began := time.Now()
			require.ErrorIs(t, do(t.Context()), context.DeadlineExceeded, what)
			require.LessOrEqual(t, time.Since(began), 5*time.Minute, what)
			hang.Store(nil)
		}
	})
}

type stuckCollector struct{}

func (stuckCollector) Collect(ctx context.Context, _ kv.Timestamp) (kv.Timestamp, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestL03_ACollectionThatDoesNotEndIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := &term{scheduler: &Scheduler{deps: Deps{Collector: stuckCollector{}}}}
		began := time.Now()
		require.ErrorIs(t, term.collect(t.Context(), hook.FromMillis(time.Now().UnixMilli())), context.DeadlineExceeded)
		require.Equal(t, collectTimeout, time.Since(began))
	})
}

func TestL03_ATermWhoseStoreDoesNotAnswerIsGivenUp(t *testing.T) {
	for _, op := range []faultkv.Op{faultkv.Now, faultkv.Update} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hang := stuckSystem(t)
				var struck atomic.Bool
				stuck := func(c faultkv.Call) bool {
					mine := c.Op == op && (op == faultkv.Now || store.Class(c.Keys[0]) == "epoch")
					if mine {
						struck.Store(true)
					}
					return mine
				}
				hang.Store(&stuck)
				n := s.start(testConfig())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.True(t, struck.Load())
				hang.Store(nil)
				time.Sleep(fenceTimeout)
				n.leads(t)
			})
		})
	}
}

func TestI2_APartitionThatDoesNotAnswerHoldsUpNoCountOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hang := stuckSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		s.source(n, "demo", 1)
		r, first, w := newRunner(t), s.writer(), s.writer()
		r.connect(n, 8, nil, nil)
		home, counting := s.store.Partition(hook.DefaultTenant, 0), make(chan struct{}, 1000)
		stuck := func(c faultkv.Call) bool {
			if c.Op != faultkv.Scan || store.Class(c.Keys[0]) != "counter" || c.Keys[0][0] == home+1 {
				return false
			}
			counting <- struct{}{}
			return true
		}
		hang.Store(&stuck)
		require.NoError(t, first.w.RaiseFlag(t.Context()))
		<-counting
		began := time.Now()
		ids, _ := w.commit("demo", hook.DefaultTenant, 1)
		require.NoError(t, w.w.RaiseFlag(t.Context()))
		require.Equal(t, ids[0], r.leased(1)[0].Row.Hook)
		require.LessOrEqual(t, time.Since(began), 2*writerPeriod)
	})
}

// mine picks the call under test from those of the term, whose lease must go on.
func mine(c faultkv.Call, id hook.RunID, what string) bool {
	switch what {
	case "forget", "fold":
		return c.Op == faultkv.Update && bytes.HasSuffix(c.Keys[0], id[:])
	case "drop":
		return c.Op == faultkv.DropRange
	default:
		return c.Op == faultkv.Scan
	}
}

func TestI2_AFoldThatDoesNotEndHoldsUpNoFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hang := stuckSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		s.source(n, "demo", 1)
		r, gone, w := newRunner(t), s.writer(), s.writer()
		r.connect(n, 8, nil, nil)
		require.NoError(t, gone.w.Beat(t.Context()))
		id, folding := gone.w.ID(), make(chan struct{}, 1)
		stuck := func(c faultkv.Call) bool {
			mine := c.Op == faultkv.Update && bytes.HasSuffix(c.Keys[0], id[:])
			if mine {
				folding <- struct{}{}
			}
			return mine
		}
		hang.Store(&stuck)
		<-folding
		began := time.Now()
		ids, _ := w.commit("demo", hook.DefaultTenant, 1)
		require.NoError(t, w.w.RaiseFlag(t.Context()))
		require.Equal(t, ids[0], r.leased(1)[0].Row.Hook)
		require.LessOrEqual(t, time.Since(began), 2*writerPeriod)
	})
}
