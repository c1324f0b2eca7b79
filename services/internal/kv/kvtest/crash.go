package kvtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
)

// childDir tells a process started by testKill that it is the one to be killed, and where its store lies.
const childDir = "KVTEST_KILL_DIR"

// testKill runs this very test in a process of its own, which commits and reports until it is killed, several times
// over one directory. What it reported must be there each time, each transaction whole.
func testKill(t *testing.T, f Factory) {
	if dir := os.Getenv(childDir); dir != "" {
		commitUntilKilled(t, f.OpenAt(t, dir))
	}
	ctx, dir := bounded(t), t.TempDir()
	acked := map[string]bool{}
	for range 3 {
		killChild(ctx, t, dir, acked)
		s := f.OpenAt(t, dir)
		requireWhole(t, dump(ctx, t, s), acked)
		var last kv.Timestamp
		for key := range acked {
			var ts kv.Timestamp
			_, err := fmt.Sscanf(key, "%d/", &ts)
			require.NoError(t, err)
			last = max(last, ts)
		}
		now, err := s.Now(ctx)
		require.NoError(t, err)
		require.Greater(t, now, last, "the clock went back")
		require.NoError(t, s.Close())
	}
}

// commitUntilKilled commits pairs of rows from several goroutines, and prints the first key of every pair committed.
func commitUntilKilled(t *testing.T, s kv.Store) {
	for w := range 8 {
		go func() {
			for {
				key, err := commitPair(context.Background(), s, w)
				if err != nil {
					fmt.Printf("\nfailed %v\n", err)
					return
				}
				fmt.Printf("\nacked %s\n", key)
			}
		}()
	}
	<-time.After(patience)
	t.Fatal("nobody killed the child")
}

// commitPair commits one row under its start timestamp, and its double.
func commitPair(ctx context.Context, s kv.Store, w int) (key string, err error) {
	_, err = s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error {
		key = fmt.Sprintf("%020d/%03d", tx.Timestamp(), w)
		return putAll(tx, []string{key, "1", "double/" + key, "1"})
	})
	return key, err
}

func requireWhole(t *testing.T, got map[string]string, acked map[string]bool) {
	for key := range acked {
		require.NotEmpty(t, got[key], "%s was acknowledged and is lost", key)
	}
	for key := range got {
		other, ok := strings.CutPrefix(key, "double/")
		if !ok {
			other = "double/" + key
		}
		require.NotEmpty(t, got[other], "%s is half a transaction", key)
	}
}

func killChild(ctx context.Context, t *testing.T, dir string, acked map[string]bool) {
	var pattern []string
	for _, element := range strings.Split(t.Name(), "/") {
		pattern = append(pattern, "^"+element+"$")
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", strings.Join(pattern, "/"), "-test.count=1")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines, others, fresh := bufio.NewScanner(out), []string{}, 0
	for lines.Scan() {
		if key, ok := strings.CutPrefix(lines.Text(), "acked "); ok {
			acked[key] = true
			if fresh++; fresh == 200 {
				require.NoError(t, cmd.Process.Kill())
			}
		} else {
			others = append(others, lines.Text())
		}
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.GreaterOrEqual(t, fresh, 200, "the child ended by itself: %q", others)
}

func testReopen(t *testing.T, f Factory) {
	ctx, dir := bounded(t), t.TempDir()
	var last kv.Timestamp
	for i := range 3 {
		s := f.OpenAt(t, dir)
		require.Len(t, dump(ctx, t, s), i)
		ts := put(ctx, t, s, fmt.Sprint(i), "x")
		require.Greater(t, ts, last)
		last = ts
		require.NoError(t, s.Close())
	}
}

// testPowerCut cuts the power at moments of no choosing under load.
func testPowerCut(t *testing.T, f Factory) {
	ctx := bounded(t)
	d := f.Disk(t, time.Millisecond)
	s := closing(t, d.Store)
	var (
		mu    sync.Mutex
		acked = map[string]bool{}
		count atomic.Int64
		fail  error
		wg    sync.WaitGroup
	)
	stop, cancel := context.WithCancel(ctx)
	for w := range 8 {
		wg.Go(func() {
			for stop.Err() == nil {
				key, err := commitPair(ctx, s, w)
				mu.Lock()
				acked[key], fail = true, errors.Join(fail, err)
				mu.Unlock()
				count.Add(1)
			}
		})
	}
	for range 10 {
		target := count.Load() + 20
		for count.Load() < target {
			require.NoError(t, passClock(ctx, s, 0))
		}
		mu.Lock()
		before := make(map[string]bool, len(acked))
		for key := range acked {
			before[key] = true
		}
		mu.Unlock()
		clone := d.Clone()
		requireWhole(t, dump(ctx, t, clone), before)
		require.NoError(t, clone.Close())
	}
	cancel()
	wg.Wait()
	require.NoError(t, fail)
}

// testSeenSurvives holds a commit between being visible and being durable. Whoever returns having seen it, the answer
// of a duplicate included, must find it again after a power cut.
func testSeenSurvives(t *testing.T, f Factory) {
	duplicate := errors.New("duplicate")
	for name, look := range map[string]func(context.Context, kv.Store, func(kv.Reader)) error{
		"view": func(ctx context.Context, s kv.Store, see func(kv.Reader)) error {
			return s.View(ctx, func(r kv.Reader) error { see(r); return nil })
		},
		"view that fails": func(ctx context.Context, s kv.Store, see func(kv.Reader)) error {
			return s.View(ctx, func(r kv.Reader) error { see(r); return duplicate })
		},
		"update without writes": func(ctx context.Context, s kv.Store, see func(kv.Reader)) error {
			_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { see(tx); return nil })
			return err
		},
		"update that fails": func(ctx context.Context, s kv.Store, see func(kv.Reader)) error {
			_, err := s.Update(ctx, kv.UpdateOptions{}, func(tx kv.Txn) error { see(tx); return duplicate })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := bounded(t)
			d := f.Disk(t, 0)
			s := closing(t, d.Store)
			put(ctx, t, s, "warm", "x")
			waiting, release := d.Hold()
			release = sync.OnceFunc(release)
			t.Cleanup(release) // a store whose sync is held cannot be closed
			committed := make(chan error, 1)
			go func() {
				_, err := write(ctx, s, kv.UpdateOptions{}, "dedupe", "x")
				committed <- err
			}()
			<-waiting
			requireHonestLooks(ctx, t, d, look)
			require.Empty(t, committed, "the commit was answered before its sync")
			release()
			require.NoError(t, <-committed)
		})
	}
}

// requireHonestLooks looks for the held row until it is seen, or for a while, should the driver hide it.
func requireHonestLooks(ctx context.Context, t *testing.T, d Disk, look func(context.Context, kv.Store, func(kv.Reader)) error) {
	for range 50 {
		saw, returned := make(chan bool, 1), make(chan struct{})
		go func() {
			defer close(returned)
			_ = look(ctx, d.Store, func(r kv.Reader) {
				_, err := r.Get(ctx, b("dedupe"))
				saw <- err == nil
			})
		}()
		seen := false
		select {
		case seen = <-saw:
		case <-ctx.Done():
			require.Fail(t, "no snapshot can be opened while a commit is on its way to the disk")
		}
		if !seen {
			// It saw nothing of the held commit, so nothing may hold it up.
			<-returned
			continue
		}
		select {
		case <-returned:
			clone := d.Clone()
			require.Contains(t, dump(ctx, t, clone), "dedupe", "somebody acted on what the power cut took back")
			require.NoError(t, clone.Close())
		case <-time.After(50 * time.Millisecond): // it waits, as it should
		}
		return
	}
}

func testClockSurvives(t *testing.T, f Factory) {
	ctx := bounded(t)
	d := f.Disk(t, 0)
	s := closing(t, d.Store)
	put(ctx, t, s, "a", "1")
	var last kv.Timestamp
	for range 1000 {
		now, err := s.Now(ctx)
		require.NoError(t, err)
		last = now
	}
	clone := closing(t, d.Clone())
	now, err := clone.Now(ctx)
	require.NoError(t, err)
	require.Greater(t, now, last)
}

// Commits that wait for the disk at the same time share its syncs.
func testGroupCommit(t *testing.T, f Factory) {
	const committers, rounds = 128, 10
	ctx := bounded(t)
	d := f.Disk(t, 20*time.Millisecond) // long beside what a commit costs on a busy machine
	s := closing(t, d.Store)
	put(ctx, t, s, "warm", "x")
	before := d.Syncs()
	require.Positive(t, before, "commits were acknowledged without a sync")
	errs := make([]error, committers)
	var wg sync.WaitGroup
	for w := range committers {
		wg.Go(func() {
			for range rounds {
				_, err := commitPair(ctx, s, w)
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	syncs := d.Syncs() - before
	t.Logf("%d commits, %d syncs", committers*rounds, syncs)
	require.Positive(t, syncs)
	require.Less(t, syncs, int64(committers*rounds/8), "every commit paid for a sync of its own")
}
