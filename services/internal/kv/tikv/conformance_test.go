package tikv_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/kvtest"
	"ankusa.dev/services/internal/kv/tikv"
	"ankusa.dev/services/internal/kv/tikv/tikvmock"
)

// realPD names a real cluster's PD. Tests that need no fault of the mock then run there, each under its own prefix.
const realPD = "ANKUSA_TEST_PD"

func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Factory{
		Open:     openEmpty,
		MaxEntry: tikv.MaxEntry,
		Doubts: map[string]kvtest.Doubt{
			"answer of the one phase lost":  {Landed: true, Open: lose("Prewrite", true)},
			"request of the one phase lost": {Landed: false, Open: lose("Prewrite", false)},
			"answer of the commit lost":     {Landed: true, Open: loseSplit(true)},
			"request of the commit lost":    {Landed: false, Open: loseSplit(false)},
		},
		Outage: outage,
		Stalls: map[string]func(testing.TB) kvtest.Stall{
			"late prewrite":             func(t testing.TB) kvtest.Stall { return stall(t, "Prewrite") },
			"late commit":               func(t testing.TB) kvtest.Stall { return stall(t, "Commit") },
			"late commit, lock removed": stallRemoved,
		},
		OpenAt:     openAt,
		Exceptions: map[string]string{"Disk": "the disks are TiKV's"},
		Leaks:      background,
	})
}

// background are goroutines that the client starts when they are first needed and keeps.
var background = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/tiancaiamao/gp.worker"),
}

func openEmpty(t testing.TB) kv.Store {
	if pd := os.Getenv(realPD); pd != "" {
		s := connect(t, pd, func(c *tikv.Config) { c.KeyPrefix = "ankusa-test-" + rand.Text() })
		t.Cleanup(func() { empty(t, pd, s) })
		return s
	}
	return connect(t, serve(t, tikvmock.Config{}))
}

// empty removes what a test left in a real cluster. The store itself may be closed by then.
func empty(t testing.TB, pd string, s kv.Store) {
	again := connect(t, pd, func(c *tikv.Config) { c.KeyPrefix = tikv.PrefixOf(s) })
	require.NoError(t, again.DropRange(context.Background(), kv.Range{}))
}

// hooks is a tikvmock.Hook that can be changed while the mock runs.
type hooks struct{ current atomic.Pointer[tikvmock.Hook] }

func (h *hooks) call(ctx context.Context, r tikvmock.Request, apply func()) bool {
	if f := h.current.Load(); f != nil {
		return (*f)(ctx, r, apply)
	}
	apply()
	return true
}

func (h *hooks) set(f tikvmock.Hook) { h.current.Store(&f) }

func (h *hooks) clear() { h.current.Store(nil) }

// lose drops one kind of request, before or after it took effect, until the caller's context has ended: soon after the
// first was dropped.
func lose(kind string, landed bool) func(testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
	return func(t testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
		h := &hooks{}
		s := connect(t, serve(t, tikvmock.Config{Hook: h.call}), quickly)
		return s, func(ctx context.Context) (context.Context, func()) {
			faulty, cancel := context.WithCancel(ctx)
			begin := sync.OnceFunc(func() { time.AfterFunc(300*time.Millisecond, cancel) })
			h.set(func(_ context.Context, r tikvmock.Request, apply func()) bool {
				if r.Kind != kind || landed {
					apply()
				}
				if r.Kind != kind {
					return true
				}
				begin()
				return false
			})
			return faulty, func() { cancel(); h.clear() }
		}
	}
}

// loseSplit loses commits of transactions that cannot do without two phases: their keys lie in two regions.
func loseSplit(landed bool) func(testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
	return func(t testing.TB) (kv.Store, func(context.Context) (context.Context, func())) {
		s, arm := lose("Commit", landed)(t)
		splitter := s.(interface {
			Split(context.Context, [][]byte) error
		})
		require.NoError(t, splitter.Split(context.Background(), [][]byte{[]byte("b")}))
		return s, arm
	}
}

func outage(t testing.TB) (s kv.Store, begin, end func()) {
	p := newProxy(t)
	p.forwardTo(serve(t, tikvmock.Config{Advertise: p.addr}))
	s = connect(t, p.addr, func(c *tikv.Config) { c.Patience = time.Second })
	return s, p.cut, func() {
		p.mend(t)
		recovered(t, s)
	}
}

// recovered returns when the store has found its cluster again. The client pauses between its attempts to connect.
func recovered(t testing.TB, s kv.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { return tx.Delete([]byte("probe")) })
		if err == nil {
			return
		}
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrUndetermined), "%v", err)
	}
}

// stall holds the first request of a kind before it takes effect.
func stall(t testing.TB, kind string) kvtest.Stall {
	h := &hooks{}
	s := connect(t, serve(t, tikvmock.Config{Hook: h.call}))
	return kvtest.Stall{Store: s, Hold: func() (<-chan struct{}, func()) {
		reached, let := make(chan struct{}), make(chan struct{})
		var held atomic.Bool
		h.set(func(_ context.Context, r tikvmock.Request, apply func()) bool {
			if r.Kind == kind && held.CompareAndSwap(false, true) {
				close(reached)
				<-let
			}
			apply()
			return true
		})
		return reached, func() { close(let) }
	}}
}

// stallRemoved holds a commit until somebody who waits for its lock has waited it out and removed it.
func stallRemoved(t testing.TB) kvtest.Stall {
	st := stall(t, "Commit")
	hold := st.Hold
	st.Hold = func() (<-chan struct{}, func()) {
		reached, release := hold()
		return reached, func() {
			_, err := st.Store.Update(context.Background(), kv.UpdateOptions{}, func(tx kv.Txn) error {
				return tx.Lock(context.Background(), []byte("a"))
			})
			require.NoError(t, err)
			release()
		}
	}
	return st
}

// atPath is a store with a mock of its own, which goes with it and frees its directory.
type atPath struct {
	kv.Store
	once sync.Once
	stop func() error
}

func (s *atPath) Close() (err error) {
	err = s.Store.Close()
	s.once.Do(func() { err = s.stop() })
	return err
}

func openAt(t testing.TB, dir string) kv.Store {
	server, err := tikvmock.Open(tikvmock.Config{Path: dir})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return &atPath{Store: connect(t, server.Addr()), stop: func() error { cancel(); return <-ended }}
}
