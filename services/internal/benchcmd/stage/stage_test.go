package stage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/benchcmd/seed"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/scheduler"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
)

func testConfig() scheduler.Config {
	return scheduler.Config{
		Core: core.Config{
			Batch: 16, MaxInflight: 64, MaxInflightBytes: 1 << 20, AttemptTimeout: 30 * time.Second,
			LeaseMargin: 5 * time.Second, Grace: 15 * time.Second,
			Default: core.Limits{MaxInflight: 64, MaxInflightBytes: 1 << 20},
		},
		Retry: hook.DefaultRetryPolicy(), Lease: 5 * time.Second, Renew: time.Second, Exclusive: true,
	}
}

// newStage is one with rows that wait.
func newStage(t *testing.T, rows int, ordered bool) *Stage {
	port, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	st, err := store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	seeder, err := seed.New(t.Context(), st)
	require.NoError(t, err)
	src, err := seeder.Source(t.Context(), "demo", ordered)
	require.NoError(t, err)
	require.NoError(t, seeder.Add(t.Context(), seed.Rows{Source: src, Tenants: []string{"acme"}, Each: rows, Lanes: 5}))
	require.NoError(t, seeder.Close(t.Context()))
	s, err := Open(t.Context(), port, testConfig(), zap.NewNop())
	require.NoError(t, err)
	return s
}

func hire(t *testing.T, s *Stage, held bool) *Crew {
	require.NoError(t, s.Lead())
	c, err := s.Hire(t.Context(), CrewOptions{
		Runners: 2, Slots: 32, Class: dispatchv1.Class_CLASS_DELIVERED, Held: held,
	})
	require.NoError(t, err)
	return c
}

func TestACrewSettlesAllRowsAndEndsCleanly(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	s := newStage(t, 300, false)
	c := hire(t, s, false)
	lap, err := c.Settled(t.Context(), 300)
	require.NoError(t, err)
	require.Equal(t, 300, lap.Taken)
	require.Equal(t, 300, lap.Unordered)
	require.Equal(t, 300, lap.Settled)
	require.NoError(t, s.Reaches(t.Context(), "ankusa_dispatch_claimed", func(v float64) bool { return v == 0 }))
	require.NoError(t, s.Settles(t.Context(), 10*time.Millisecond))
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	goleak.VerifyNone(t, leaks)
}

func TestMembersOfLanesAreToldApart(t *testing.T) {
	s := newStage(t, 50, true)
	c := hire(t, s, false)
	lap, err := c.Settled(t.Context(), 50)
	require.NoError(t, err)
	require.Equal(t, 50, lap.Taken)
	require.Zero(t, lap.Unordered)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

func TestAHeldCrewKeepsItsAnswers(t *testing.T) {
	s := newStage(t, 50, false)
	c := hire(t, s, true)
	_, err := c.Until(t.Context(), func(l Lap) bool { return l.Taken > 0 })
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Settled(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Release())
	_, err = c.Settled(t.Context(), 50)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

func TestWhoWaitsLearnsThatTheStreamBroke(t *testing.T) {
	s := newStage(t, 1, false)
	c := hire(t, s, false)
	_, err := c.Settled(t.Context(), 1)
	require.NoError(t, err)
	s.stop()
	_, err = c.Settled(t.Context(), 2)
	require.ErrorContains(t, err, "runner")
	require.Error(t, c.Close())
	require.NoError(t, s.Close())
}

func TestLapsTellRateAndCost(t *testing.T) {
	began := time.Now()
	a := Lap{Settled: 100, At: began, CPU: time.Second}
	b := Lap{Settled: 300, At: began.Add(2 * time.Second), CPU: 2 * time.Second}
	require.InDelta(t, 100, b.Rate(a), 0)
	require.InDelta(t, 5000, b.Cost(a), 0)
}

func TestCountsAreOfCallsAndOfKeysWritten(t *testing.T) {
	s := newStage(t, 1, false)
	before := s.Counts()
	require.NoError(t, s.Store.Ready(t.Context()))
	_, err := s.Store.LeaderLease(t.Context())
	require.NoError(t, err)
	done := s.Counts().Sub(before)
	require.Equal(t, Counts{Calls: map[string]int{"ready": 1, "lease": 1}, Transactions: 1, Writes: 1}, done)
	require.Equal(t, 2, done.All())
	require.NoError(t, s.Close())
}
