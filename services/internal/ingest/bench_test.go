package ingest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/ingest"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/telemetry"
)

// BenchmarkAccept is hooks per second over 64 connections, bodies of 512 B, beside a bare handler that commits one key
// per request with a sync. Client and server share the process, so the two are to be compared with each other only.
func BenchmarkAccept(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		db, err := pebble.Open(filepath.Join(b.TempDir(), "db"), &pebble.Options{})
		require.NoError(b, err)
		defer func() { require.NoError(b, db.Close()) }()
		var n atomic.Uint64
		drive(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = db.Set(fmt.Appendf(nil, "%020d", n.Add(1)), body, pebble.Sync)
			}
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}), nil)
	})
	b.Run("ingest", func(b *testing.B) {
		o := local.Default()
		o.Dir = filepath.Join(b.TempDir(), "db")
		disk, err := local.Open(o, zap.NewNop())
		require.NoError(b, err)
		defer func() { require.NoError(b, disk.Close()) }()
		benchmark(b, disk, ingest.Default())
	})
}

// BenchmarkCommitsInFlight is the same on a store whose commits take 5 ms each however many there are at once, as those
// of a store across a network do, by the number of commits of a partition that may run at once.
func BenchmarkCommitsInFlight(b *testing.B) {
	for n := 1; n <= 4; n++ {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			mem, err := local.OpenMem(zap.NewNop())
			require.NoError(b, err)
			defer func() { require.NoError(b, mem.Close()) }()
			far := faultkv.New(mem, nil)
			far.SetHooks(faultkv.Hooks{After: func(_ context.Context, _ faultkv.Commit, _ kv.Timestamp, err error) error {
				<-time.After(5 * time.Millisecond)
				return err
			}})
			c := ingest.Default()
			c.Accept.CommitsInFlight = n
			benchmark(b, far, c)
		})
	}
}

// benchmark drives ingest on a store.
func benchmark(b *testing.B, port kv.Store, c ingest.Config) {
	st, err := store.Open(b.Context(), port, store.Options{})
	require.NoError(b, err)
	s := source.New("default", "bench")
	s.Verify.Type, s.Sinks = source.VerifyNone, []source.Sink{{Type: source.SinkLog}}
	_, err = st.CreateSource(b.Context(), s)
	require.NoError(b, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	i, err := ingest.New(c, ingest.Deps{
		Store: st, Scheduler: acknowledging(b), Listener: l, Metrics: telemetry.NewMetrics("bench"), Log: zap.NewNop(),
	})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(b, i.Run(ctx)) })
	drive(b, nil, l)
	stop()
	wg.Wait()
}

// drive posts b.N hooks over 64 connections.
func drive(b *testing.B, h http.Handler, l net.Listener) {
	if h != nil {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		server := &http.Server{Handler: h}
		go func() { _ = server.Serve(l) }()
		defer func() { require.NoError(b, server.Close()) }()
	}
	request := []byte("POST /webhooks/bench HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n" +
		"Accept: */*; q=0.5, application/xml\r\nContent-Type: application/json; charset=utf-8\r\nCache-Control: no-cache\r\n" +
		"X-Event: invoice.paid\r\nContent-Length: 512\r\n\r\n" + strings.Repeat("x", 512))
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	before := cpu(b)
	b.ResetTimer()
	for range 64 {
		wg.Go(func() { post(b, l.Addr().String(), request, &left) })
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "hooks/s")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/hook")
}

// cpu is the time that the process has spent on processors, which says more than the wall on a busy machine.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func post(b *testing.B, addr string, request []byte, left *atomic.Int64) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	r := bufio.NewReaderSize(c, 1024)
	for left.Add(-1) >= 0 {
		if _, err := c.Write(request); err != nil {
			b.Error(err)
			return
		}
		response, err := http.ReadResponse(r, nil)
		if err != nil || response.StatusCode != http.StatusCreated {
			b.Error(response, err)
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
	}
}
