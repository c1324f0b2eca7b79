package telemetry_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/telemetry"
)

// gate is a writer that takes nothing until it is opened.
type gate struct {
	mu     sync.Mutex
	open   chan struct{}
	calls  int
	text   bytes.Buffer
	synced bool
	err    error
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	g.text.Write(p)
	return len(p), g.err
}

func (g *gate) Sync() error {
	g.synced = true
	return nil
}

func TestLinesOfOneMomentAreWrittenTogetherAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := telemetry.NewLines(g)
		want := ""
		for i := range 100 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			_, err := l.Write([]byte(line))
			require.NoError(t, err, "whoever logs does not wait for the writer")
		}
		synctest.Wait()
		close(g.open)
		require.NoError(t, l.Sync())
		require.Equal(t, want, g.text.String())
		require.LessOrEqual(t, g.calls, 2)
		require.True(t, g.synced)
	})
}

func TestALineThatComesAloneIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		close(g.open)
		l := telemetry.NewLines(g)
		for i := range 3 {
			_, err := l.Write([]byte("x\n"))
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, strings.Repeat("x\n", i+1), g.text.String())
		}
	})
}

func TestWhoeverLogsWaitsForAWriterThatIsFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := telemetry.NewLines(g)
		line := bytes.Repeat([]byte("x"), 1<<10)
		logged := make(chan int, 1)
		go func() {
			n := 0
			for ; n < 10<<10; n++ {
				_, _ = l.Write(line)
			}
			logged <- n
		}()
		synctest.Wait()
		require.Empty(t, logged)
		close(g.open)
		require.Equal(t, 10<<10, <-logged)
		require.NoError(t, l.Sync())
		require.Equal(t, 10<<20, g.text.Len())
	})
}

func TestAWriterThatFailsIsToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		g := &gate{open: make(chan struct{}), err: broken}
		close(g.open)
		l := telemetry.NewLines(g)
		_, err := l.Write([]byte("x\n"))
		require.NoError(t, err)
		synctest.Wait()
		g.err = nil
		_, err = l.Write([]byte("y\n"))
		require.ErrorIs(t, err, broken)
		require.NoError(t, l.Sync())
		_, err = l.Write([]byte("z\n"))
		require.NoError(t, err)
		require.NoError(t, l.Sync())
		require.Equal(t, "x\ny\nz\n", g.text.String())
		require.True(t, g.synced)
	})
}

// Whoever is about to end the process waits for its own lines, not for those of others.
func TestSyncDoesNotWaitForLinesThatComeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *telemetry.Lines
		var end atomic.Bool
		l = telemetry.NewLines(writerFunc(func(p []byte) (int, error) {
			time.Sleep(time.Millisecond)
			if !end.Load() { // there always is another line
				_, _ = l.Write([]byte("more\n"))
			}
			return len(p), nil
		}))
		_, _ = l.Write([]byte("last\n"))
		require.NoError(t, l.Sync())
		end.Store(true)
		require.NoError(t, l.Sync())
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
