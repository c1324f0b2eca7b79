package faultkv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/kvtest"
	"ankusa.dev/services/internal/kv/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mem(t testing.TB) kv.Store {
	s, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	return s
}

func open(t testing.TB, plan Plan) *Store {
	s := New(mem(t), plan)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

const disk = "durability is that of the store inside"

func TestConformanceWithoutFaults(t *testing.T) {
	kvtest.Run(t, kvtest.Factory{
		Open:     func(t testing.TB) kv.Store { return New(mem(t), nil) },
		MaxEntry: 6 << 20,
		Doubts: map[string]kvtest.Doubt{
			"landed": doubt(true, UndeterminedLanded),
			"lost":   doubt(false, UndeterminedLost),
		},
		Outage: func(t testing.TB) (kv.Store, func(), func()) {
			s := New(mem(t), nil)
			return s, func() { s.SetDown(true) }, func() { s.SetDown(false) }
		},
		Stalls: map[string]func(testing.TB) kvtest.Stall{
			"hook":    hookStall,
			"latency": latencyStall,
		},
		Exceptions: map[string]string{"OpenAt": disk, "Disk": disk},
	})
}

// doubt strikes the second commit: the suite makes one before it arms.
func doubt(landed bool, kind Kind) kvtest.Doubt {
	return kvtest.Doubt{Landed: landed, Open: func(t testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
		s := New(mem(t), Script(Update, Fault{}, Fault{Kind: kind}))
		return s, func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	}}
}

func hookStall(t testing.TB) kvtest.Stall {
	s := New(mem(t), nil)
	return kvtest.Stall{Store: s, Hold: func() (<-chan struct{}, func()) {
		reached, gate := make(chan struct{}), make(chan struct{})
		s.SetHooks(Hooks{Before: func(context.Context, Commit) error {
			s.SetHooks(Hooks{})
			close(reached)
			<-gate
			return nil
		}})
		return reached, func() { close(gate) }
	}}
}

// latencyStall lets the latency end the stall: nobody has to release it.
func latencyStall(t testing.TB) kvtest.Stall {
	reached := make(chan struct{})
	s := New(mem(t), func(c Call) Fault {
		if c.Op == Update && c.N == 1 {
			close(reached)
			return Fault{Latency: 2 * time.Second} // past the bound, and past the look at what is there then
		}
		return Fault{}
	})
	return kvtest.Stall{Store: s, Hold: func() (<-chan struct{}, func()) { return reached, func() {} }}
}

func put(ctx context.Context, s kv.Store, bound time.Duration, key string) error {
	_, err := s.Update(ctx, kv.UpdateOptions{Bound: bound}, func(tx kv.Txn) error {
		return tx.Put([]byte(key), []byte("x"))
	})
	return err
}

func has(t *testing.T, s kv.Store, key string) bool {
	err := s.View(t.Context(), func(r kv.Reader) error {
		_, err := r.Get(t.Context(), []byte(key))
		return err
	})
	if !errors.Is(err, kv.ErrNotFound) {
		require.NoError(t, err)
	}
	return err == nil
}

func TestEveryKindStrikesOnceAndSaysTheTruth(t *testing.T) {
	for kind, want := range map[Kind]struct {
		err    error
		landed bool
	}{
		None:               {nil, true},
		Unavailable:        {kv.ErrUnavailable, false},
		Conflict:           {kv.ErrConflict, false},
		Bound:              {kv.ErrBound, false},
		UndeterminedLanded: {kv.ErrUndetermined, true},
		UndeterminedLost:   {kv.ErrUndetermined, false},
	} {
		s := open(t, Script(Update, Fault{Kind: kind}))
		require.ErrorIs(t, put(t.Context(), s, time.Minute, "a"), want.err)
		require.Equal(t, want.landed, has(t, s, "a"), "kind %d", kind)
		require.NoError(t, put(t.Context(), s, time.Minute, "b"))
	}
}

func TestConflictNamesAKeyOfTheTransaction(t *testing.T) {
	s := open(t, Script(Update, Fault{Kind: Conflict}))
	var conflict *kv.ConflictError
	require.ErrorAs(t, put(t.Context(), s, 0, "a"), &conflict)
	require.Equal(t, "a", string(conflict.Key))
}

func TestCommitFaultsSpareWhatHasNothingToCommit(t *testing.T) {
	always := func(kind Kind) Plan { return func(Call) Fault { return Fault{Kind: kind} } }
	for _, kind := range []Kind{Conflict, Bound, UndeterminedLanded, UndeterminedLost} {
		s := open(t, always(kind))
		_, err := s.Update(t.Context(), kv.UpdateOptions{Bound: time.Minute}, func(kv.Txn) error { return nil })
		require.NoError(t, err)
		require.False(t, has(t, s, "a"))
		_, err = s.Now(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, put(t.Context(), open(t, always(Bound)), 0, "a"), "no bound, none to pass")
}

func TestOutageStrikesReadsWithinOpenClosures(t *testing.T) {
	s := open(t, nil)
	_, err := s.Update(t.Context(), kv.UpdateOptions{}, func(tx kv.Txn) error {
		require.NoError(t, tx.Put([]byte("a"), []byte("x")))
		s.SetDown(true)
		_, err := tx.Get(t.Context(), []byte("b"))
		require.ErrorIs(t, err, kv.ErrUnavailable)
		_, err = tx.BatchGet(t.Context(), [][]byte{[]byte("b")})
		require.ErrorIs(t, err, kv.ErrUnavailable)
		_, err = tx.Scan(t.Context(), kv.Scan{Limit: 1})
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.ErrorIs(t, tx.Lock(t.Context(), []byte("b")), kv.ErrUnavailable)
		require.ErrorIs(t, s.DropRange(t.Context(), kv.Range{}), kv.ErrUnavailable)
		return nil
	})
	require.ErrorIs(t, err, kv.ErrUnavailable)
	s.SetDown(false)
	require.False(t, has(t, s, "a"))
}

func TestHooksStopAndBendCommits(t *testing.T) {
	s := open(t, nil)
	stop := errors.New("stopped")
	var seen []string
	s.SetHooks(Hooks{Before: func(_ context.Context, c Commit) error {
		seen = append(seen, fmt.Sprintf("%s", c.Keys))
		return stop
	}})
	require.ErrorIs(t, put(t.Context(), s, 0, "a"), stop)
	require.False(t, has(t, s, "a"))
	s.SetHooks(Hooks{After: func(_ context.Context, c Commit, ts kv.Timestamp, err error) error {
		require.NoError(t, err)
		require.Greater(t, ts, c.Start)
		return stop
	}})
	require.ErrorIs(t, put(t.Context(), s, 0, "b"), stop)
	require.True(t, has(t, s, "b"))
	require.Equal(t, []string{"[a]"}, seen)
}

func TestPlannedOutageAndLatencyRunOnTheBubblesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(mem(t), First(
			Script(Update, Fault{}, Fault{Kind: Unavailable, Outage: time.Minute}),
			Script(Now, Fault{Latency: time.Hour})))
		require.NoError(t, put(t.Context(), s, 0, "a"))
		require.ErrorIs(t, put(t.Context(), s, 0, "b"), kv.ErrUnavailable)
		time.Sleep(time.Minute - time.Nanosecond)
		require.ErrorIs(t, put(t.Context(), s, 0, "b"), kv.ErrUnavailable)
		require.ErrorIs(t, s.View(t.Context(), func(kv.Reader) error { return nil }), kv.ErrUnavailable)
		time.Sleep(time.Nanosecond)
		require.NoError(t, put(t.Context(), s, 0, "b"))
		before := time.Now()
		_, err := s.Now(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Since(before))
		require.NoError(t, s.Close())
	})
}

func TestSeededPlanDependsOnTheSeedAlone(t *testing.T) {
	rates := Rates{Unavailable: .1, Conflict: .1, Bound: .1, UndeterminedLanded: .1, UndeterminedLost: .1, Slow: .2,
		MaxLatency: time.Second, Outage: time.Minute}
	one, same, other := Seeded(1, rates), Seeded(1, rates), Seeded(2, rates)
	kinds, slow, differ := map[Kind]int{}, 0, 0
	for n := range 10_000 {
		f := one(Call{Op: Update, N: n})
		require.Equal(t, f, same(Call{Op: Update, N: n}))
		if f != other(Call{Op: Update, N: n}) {
			differ++
		}
		kinds[f.Kind]++
		if f.Latency > 0 {
			require.LessOrEqual(t, f.Latency, time.Second)
			slow++
		}
		require.Equal(t, f.Kind == Unavailable, f.Outage == time.Minute)
	}
	require.InDelta(t, 5000, kinds[None], 300)
	for kind := Unavailable; kind <= UndeterminedLost; kind++ {
		require.InDelta(t, 1000, kinds[kind], 150)
	}
	require.InDelta(t, 2000, slow, 200)
	require.Greater(t, differ, 5000)
}
