package run_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/run"
)

func TestMain(m *testing.M) {
	if os.Getenv("RUN_TEST_CHILD") != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// journal notes what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// part takes a while to stop.
func (j *journal) part(name string, stop time.Duration) run.Part {
	return run.Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		j.add(name + " asked")
		time.Sleep(stop)
		j.add(name + " ended")
		return nil
	}}
}

var errBroken = errors.New("broken")

func TestPartsStopInReverseOrderOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := run.Parts(ctx, zap.NewNop(), time.Minute, j.part("store", time.Second), j.part("role", time.Second), j.part("intake", time.Second))
		require.NoError(t, err)
		require.Equal(t, []string{"intake asked", "intake ended", "role asked", "role ended", "store asked", "store ended"}, j.lines)
	})
}

func TestOneFailedPartStopsAllAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		failing := run.Part{Name: "failing", Run: func(context.Context) error {
			time.Sleep(time.Minute)
			return errBroken
		}}
		began := time.Now()
		err := run.Parts(t.Context(), zap.NewNop(), time.Minute, j.part("store", time.Second), failing, j.part("intake", time.Second))
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "failing: broken")
		require.Equal(t, []string{"intake asked", "intake ended", "store asked", "store ended"}, j.lines)
		require.Equal(t, time.Minute+2*time.Second, time.Since(began))
	})
}

func TestAPartThatEndsOnItsOwnIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		short := run.Part{Name: "short", Run: func(context.Context) error { return nil }}
		err := run.Parts(t.Context(), zap.NewNop(), time.Minute, short, j.part("other", 0))
		require.ErrorIs(t, err, run.ErrEnded)
		require.ErrorContains(t, err, "short")
	})
}

func TestErrorsWhileStoppingAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bad := run.Part{Name: "bad", Run: func(ctx context.Context) error { <-ctx.Done(); return errBroken }}
		cancelled := run.Part{Name: "cancelled", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		err := run.Parts(ctx, zap.NewNop(), time.Minute, cancelled, bad)
		require.EqualError(t, err, "bad: broken")
	})
}

func TestPastTheDeadlineAllStopAtOnceAndTheStuckAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		free := make(chan struct{})
		stuck := run.Part{Name: "stuck", Run: func(context.Context) error { <-free; return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := run.Parts(ctx, zap.NewNop(), 10*time.Second, j.part("store", 0), stuck)
		var named *run.StuckError
		require.ErrorAs(t, err, &named)
		require.Equal(t, []string{"stuck"}, named.Parts)
		require.Equal(t, []string{"store asked", "store ended"}, j.lines)
		require.Equal(t, time.Hour+11*time.Second, time.Since(began))
		close(free)
	})
}

type closing struct{ closed bool }

func (c *closing) Close() error { c.closed = true; return nil }

func TestACloserIsClosedOnlyWhenAllAfterItHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closing
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		user := run.Part{Name: "user", Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			require.False(t, c.closed)
			return nil
		}}
		require.NoError(t, run.Parts(ctx, zap.NewNop(), time.Minute, run.Closer("store", &c), user))
		require.True(t, c.closed)
	})
}

func TestHTTPLetsARequestEndAndCutsOffTheOneThatDoesNot(t *testing.T) {
	for name, drain := range map[string]time.Duration{"ends": time.Minute, "cut off": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			begun, release := make(chan struct{}), make(chan struct{})
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				select {
				case <-release:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "done")
			})}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run.HTTP("http", server, l, drain).Run(ctx) }()
			answer := make(chan string, 1)
			go func() { answer <- get("http://" + l.Addr().String()) }()
			<-begun
			cancel()
			if drain == time.Minute {
				close(release)
			}
			require.NoError(t, <-ended)
			want := map[string]string{"ends": "done", "cut off": "failed"}
			require.Equal(t, want[name], <-answer)
		})
	}
}

func get(url string) string {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		return "failed"
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// child is a process that never ends after its first signal.
func child() {
	ctx, release := run.Signals(context.Background())
	defer release()
	_, _ = os.Stdout.WriteString("ready\n")
	<-ctx.Done()
	_, _ = os.Stdout.WriteString("stopping\n")
	select {}
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "RUN_TEST_CHILD=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		expectLine(t, out, "ready\n")
		require.NoError(t, cmd.Process.Signal(sig))
		expectLine(t, out, "stopping\n")
		// The handler is restored by a goroutine of its own: ask until the signal lands.
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		tick := time.NewTicker(10 * time.Millisecond)
		for done := false; !done; {
			select {
			case err = <-ended:
				done = true
			case <-tick.C:
				_ = cmd.Process.Signal(sig)
			}
		}
		tick.Stop()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.True(t, exit.Sys().(syscall.WaitStatus).Signaled())
	}
}

func expectLine(t *testing.T, r io.Reader, want string) {
	t.Helper()
	buffer := make([]byte, len(want))
	_, err := io.ReadFull(r, buffer)
	require.NoError(t, err)
	require.Equal(t, want, strings.Clone(string(buffer)))
}
