package tikv_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
	"ankusa.dev/services/internal/kv/tikv/tikvmock"
)

func put(ctx context.Context, s kv.Store, o kv.UpdateOptions, key, value string) (kv.Timestamp, error) {
	return s.Update(ctx, o, func(tx kv.Txn) error { return tx.Put([]byte(key), []byte(value)) })
}

func get(ctx context.Context, s kv.Store, key string) (value string, err error) {
	err = s.View(ctx, func(r kv.Reader) error {
		v, err := r.Get(ctx, []byte(key))
		value = string(v)
		return err
	})
	return value, err
}

func scanAll(ctx context.Context, t testing.TB, s kv.Store, reverse bool) (keys []string) {
	require.NoError(t, s.View(ctx, func(r kv.Reader) error {
		pairs, err := r.Scan(ctx, kv.Scan{Limit: 1 << 20, Reverse: reverse})
		for _, p := range pairs {
			keys = append(keys, string(p.Key))
		}
		return err
	}))
	return keys
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestStoresOfOneClusterConflict(t *testing.T) {
	ctx := within(t, time.Minute)
	pd := serve(t, tikvmock.Config{})
	a, b := connect(t, pd), connect(t, pd)
	for _, o := range []kv.UpdateOptions{{}, {Bound: time.Minute}} {
		_, err := a.Update(ctx, o, func(tx kv.Txn) error {
			require.NoError(t, tx.Lock(ctx, []byte("key")))
			_, err := put(ctx, b, kv.UpdateOptions{}, "key", "b")
			require.NoError(t, err)
			return tx.Put([]byte("other"), []byte("a"))
		})
		var conflict *kv.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, "key", string(conflict.Key), "without the store's prefix")
		require.Equal(t, []string{"key"}, scanAll(ctx, t, a, false))
	}
}

func TestPrefixesAreApart(t *testing.T) {
	ctx := within(t, time.Minute)
	pd := serve(t, tikvmock.Config{})
	stores := map[string]kv.Store{}
	for _, prefix := range []string{"a", "a\xff", "b"} {
		stores[prefix] = connect(t, pd, func(c *tikv.Config) { c.KeyPrefix = prefix })
	}
	for prefix, s := range stores {
		if prefix == "a" { // its space holds the second's
			continue
		}
		_, err := put(ctx, s, kv.UpdateOptions{}, "key", prefix)
		require.NoError(t, err)
	}
	for _, prefix := range []string{"a\xff", "b"} {
		require.Equal(t, []string{"key"}, scanAll(ctx, t, stores[prefix], true), "%q", prefix)
	}
	require.NoError(t, stores["a\xff"].DropRange(ctx, kv.Range{}))
	require.Empty(t, scanAll(ctx, t, stores["a\xff"], false))
	require.Equal(t, []string{"key"}, scanAll(ctx, t, stores["b"], false))
}

// Transactions, scans and dropped ranges cross the borders of regions, also ones that another store's cache does not
// know of.
func TestRegionsSplit(t *testing.T) {
	ctx := within(t, time.Minute)
	pd := serve(t, tikvmock.Config{})
	a, b := connect(t, pd), connect(t, pd)
	var keys [][]byte
	var names, backwards []string
	for i := range 600 {
		keys = append(keys, fmt.Appendf(nil, "%03d", i))
		names = append(names, string(keys[i]))
		backwards = append([]string{names[i]}, backwards...)
	}
	splitter := a.(interface {
		Split(context.Context, [][]byte) error
	})
	for _, borders := range [][][]byte{{keys[100], keys[300]}, {keys[200], keys[300], keys[301]}, {keys[301]}} {
		_, err := b.Update(ctx, kv.UpdateOptions{Bound: time.Minute}, func(tx kv.Txn) error {
			for _, k := range keys {
				require.NoError(t, tx.Put(k, k))
			}
			return nil
		})
		require.NoError(t, err)
		require.NoError(t, splitter.Split(ctx, borders))
		require.Equal(t, names, scanAll(ctx, t, b, false))
		require.Equal(t, backwards, scanAll(ctx, t, b, true))
	}
	require.NoError(t, b.DropRange(ctx, kv.Range{From: keys[50], To: keys[400]}))
	require.Equal(t, append(names[:50:50], names[400:]...), scanAll(ctx, t, a, false))
}

// A reader that comes to a transaction's lock after its commit timestamp was chosen makes the client choose a later
// one, for which the bound must hold all the same.
func TestBoundHoldsWhenAReaderPushesTheCommit(t *testing.T) {
	ctx := within(t, time.Minute)
	st := stall(t, "Commit")
	s := st.Store
	const bound = 2 * time.Second // a busy machine must get as far as the commit within it
	_, err := put(ctx, s, kv.UpdateOptions{}, "warm", "x")
	require.NoError(t, err)
	reached, release := st.Hold()
	var start kv.Timestamp
	done := make(chan error, 1)
	go func() {
		_, err := s.Update(ctx, kv.UpdateOptions{Bound: bound}, func(tx kv.Txn) error {
			start = tx.Timestamp()
			return tx.Put([]byte("key"), []byte("value"))
		})
		done <- err
	}()
	select {
	case <-reached:
	case err := <-done:
		require.Fail(t, "the commit was not held", "%v", err)
	}
	for { // until the bound has passed, so that a later timestamp is a late one
		_, err := get(ctx, s, "key")
		require.ErrorIs(t, err, kv.ErrNotFound)
		now, err := s.Now(ctx)
		require.NoError(t, err)
		if now > start.Add(bound) {
			break
		}
	}
	release()
	require.ErrorIs(t, <-done, kv.ErrBound)
	_, err = get(ctx, s, "key")
	require.ErrorIs(t, err, kv.ErrNotFound)
}

func TestCallsEndWithTheirContextWhileTheClusterIsFrozen(t *testing.T) {
	p := newProxy(t)
	p.forwardTo(serve(t, tikvmock.Config{Advertise: p.addr}))
	s := connect(t, p.addr)
	_, err := put(within(t, time.Minute), s, kv.UpdateOptions{}, "key", "old")
	require.NoError(t, err)
	const patience, slack = 200 * time.Millisecond, 2 * time.Second
	for name, call := range map[string]func(context.Context, kv.Reader) error{
		"get": func(ctx context.Context, r kv.Reader) error { _, err := r.Get(ctx, []byte("key")); return err },
		"batch get": func(ctx context.Context, r kv.Reader) error {
			_, err := r.BatchGet(ctx, [][]byte{[]byte("key"), []byte("z")})
			return err
		},
		"scan":       func(ctx context.Context, r kv.Reader) error { _, err := r.Scan(ctx, kv.Scan{Limit: 3}); return err },
		"now":        func(ctx context.Context, _ kv.Reader) error { _, err := s.Now(ctx); return err },
		"drop range": func(ctx context.Context, _ kv.Reader) error { return s.DropRange(ctx, kv.Range{}) },
	} {
		require.NoError(t, s.View(within(t, time.Minute), func(r kv.Reader) error {
			p.freeze(true)
			defer p.freeze(false)
			began := time.Now()
			require.ErrorIs(t, call(within(t, patience), r), context.DeadlineExceeded, name)
			require.Less(t, time.Since(began), patience+slack, name)
			return nil
		}), name)
		recovered(t, s)
	}
	requireFrozenCommit(t, p, s, patience, slack)
}

func requireFrozenCommit(t *testing.T, p *proxy, s kv.Store, patience, slack time.Duration) {
	for _, o := range []kv.UpdateOptions{{}, {Bound: 5 * time.Second}} {
		ctx, cancel := context.WithCancel(context.Background())
		var began time.Time
		_, err := s.Update(ctx, o, func(tx kv.Txn) error {
			p.freeze(true)
			began = time.Now()
			time.AfterFunc(patience, cancel)
			return tx.Put([]byte("key"), []byte("new"))
		})
		require.True(t, errors.Is(err, context.Canceled), "%v", err)
		require.Less(t, time.Since(began), patience+slack)
		p.freeze(false)
		recovered(t, s)
	}
}

// A store object that lost its cluster goes on by itself when the cluster is back, however it was lost.
func TestL03_StoreSurvivesAnOutage(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(testing.TB, *proxy) }{
		"cut":    {func(_ testing.TB, p *proxy) { p.cut() }, func(t testing.TB, p *proxy) { p.mend(t) }},
		"frozen": {func(_ testing.TB, p *proxy) { p.freeze(true) }, func(_ testing.TB, p *proxy) { p.freeze(false) }},
		"frozen, then cut": {func(_ testing.TB, p *proxy) { p.freeze(true) }, func(t testing.TB, p *proxy) {
			p.cut()
			p.freeze(false)
			p.mend(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := within(t, 2*time.Minute)
			p := newProxy(t)
			p.forwardTo(serve(t, tikvmock.Config{Advertise: p.addr}))
			s := connect(t, p.addr, func(c *tikv.Config) { c.Patience = time.Second })
			_, err := put(ctx, s, kv.UpdateOptions{}, "before", "1")
			require.NoError(t, err)
			fault.begin(t, p)
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
				_, err := put(ctx, s, kv.UpdateOptions{Bound: 5 * time.Second}, "during", "1")
				require.True(t, errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrUndetermined), "%v", err)
			}
			fault.end(t, p)
			recovered(t, s)
			v, err := get(ctx, s, "before")
			require.NoError(t, err)
			require.Equal(t, "1", v)
		})
	}
}

func TestCloseEndsCallsAndLeavesNothingBehind(t *testing.T) {
	p := newProxy(t)
	p.forwardTo(serve(t, tikvmock.Config{Advertise: p.addr}))
	for _, frozen := range []bool{false, true} {
		leaks := append([]goleak.Option{goleak.IgnoreCurrent()}, background...)
		s := connect(t, p.addr)
		p.freeze(frozen)
		stuck := make(chan error, 1)
		go func() {
			_, err := s.Now(context.Background())
			for ; err == nil && !frozen; _, err = s.Now(context.Background()) {
			}
			stuck <- err
		}()
		began := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), 5*time.Second)
		require.ErrorIs(t, <-stuck, kv.ErrUnavailable)
		p.freeze(false)
		goleak.VerifyNone(t, leaks...)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	p := newProxy(t) // forwards to nowhere
	p.freeze(true)
	leaks := goleak.IgnoreCurrent()
	for _, cut := range []bool{false, true} {
		if cut {
			p.cut()
		}
		c := tikv.Default()
		c.PD = []string{p.addr}
		began := time.Now()
		_, err := tikv.Open(within(t, 300*time.Millisecond), c, zap.NewNop())
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.Less(t, time.Since(began), 5*time.Second)
	}
	goleak.VerifyNone(t, leaks)
}

// mock is the tikvmock command as a process of its own.
type mock struct {
	cmd *exec.Cmd
	pd  string
}

func startMock(t testing.TB, command string, args ...string) *mock {
	m := &mock{cmd: exec.Command(command, args...)}
	out, err := m.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	t.Cleanup(func() { _ = m.cmd.Process.Kill(); _ = m.cmd.Wait() })
	line := bufio.NewScanner(out)
	require.True(t, line.Scan(), "the mock says nothing")
	var said struct{ PD string }
	require.NoError(t, json.Unmarshal(line.Bytes(), &said))
	m.pd = said.PD
	return m
}

func mockBinary(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "tikvmock")
	out, err := exec.Command("go", "build", "-o", path, "ankusa.dev/services/tikvmock").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// A killed mock that is started again at its address and path has all that was acknowledged, its regions, and a clock
// that goes on, and the store object goes on with it.
func TestKilledMockLosesNothing(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	command, dir := mockBinary(t), t.TempDir()
	m := startMock(t, command, "--path", dir)
	s := connect(t, m.pd, func(c *tikv.Config) { c.Patience = 2 * time.Second })
	split := s.(interface {
		Split(context.Context, [][]byte) error
	})
	require.NoError(t, split.Split(ctx, [][]byte{[]byte("1/"), []byte("2/0005")}))
	acked := map[string]bool{}
	var last kv.Timestamp
	for round := range 3 {
		killed := time.AfterFunc(300*time.Millisecond, func() { _ = m.cmd.Process.Kill() })
		for i := 0; ; i++ {
			key := fmt.Sprintf("%d/%04d", round, i)
			ts, err := put(ctx, s, kv.UpdateOptions{Bound: time.Duration(i%2) * 5 * time.Second}, key, "1")
			if err != nil {
				break
			}
			require.Greater(t, ts, last)
			acked[key], last = true, ts
		}
		require.False(t, killed.Stop(), "an update failed before the mock was killed")
		_ = m.cmd.Wait()
		m = startMock(t, command, "--path", dir, "--listen", m.pd)
		recovered(t, s)
		requireKept(ctx, t, s, acked)
	}
}

func requireKept(ctx context.Context, t *testing.T, s kv.Store, acked map[string]bool) {
	found := map[string]bool{}
	for _, key := range scanAll(ctx, t, s, false) {
		found[key] = true
	}
	for key := range acked {
		require.True(t, found[key], "%s was acknowledged and is lost", key)
	}
}
