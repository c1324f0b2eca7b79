package httpsink

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"ankusa.dev/services/internal/hook"
)

func TestL36_AConnectionWhoseAnswerEndedWithinTheCapServesAgain(t *testing.T) {
	size := 0
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		_, _ = w.Write(make([]byte, size))
	})
	s := newSink(t, nil)
	deliver := func() {
		d := deliveryTo(r.URL)
		d.Sink.HTTP.MaxResponse = 1000
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
	}
	for _, size = range []int{0, 1, 999, 1000} {
		deliver()
	}
	require.EqualValues(t, 1, r.connections.Load())
	size = 5000
	deliver()
	deliver()
	require.EqualValues(t, 2, r.connections.Load(), "the connection of an answer past the cap was closed")
}

func TestL36_ManyAttemptsAtOnceKeepTheirConnections(t *testing.T) {
	const workers, rounds = 64, 20
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	s := newSink(t, nil)
	var all sync.WaitGroup
	var failed atomic.Int64
	for range workers {
		all.Go(func() {
			for range rounds {
				if s.Deliver(t.Context(), deliveryTo(r.URL)).Class != hook.Delivered {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, failed.Load())
	// An attempt that begins while the connection of the one before is still on its way back opens another.
	require.Less(t, r.connections.Load(), int64(4*workers))
}

func TestL35_AnEndlessAnswerDoesNotStallADelivery(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 8<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, handle := range map[string]http.HandlerFunc{
		"flood": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		},
		"drip": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
		"silence": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"gzip bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t, handle)
			d := deliveryTo(r.URL)
			d.Sink.HTTP.Timeout = time.Minute
			began := time.Now()
			o := newSink(t, nil).Deliver(t.Context(), d)
			require.Equal(t, hook.Delivered, o.Class, "the status had decided")
			require.Less(t, time.Since(began), 20*time.Second)
			require.LessOrEqual(t, len(o.Response), hook.MaxResponse)
		})
	}
}

func TestL37_AnIdleConnectionThatTheReceiverClosedDoesNotFailADelivery(t *testing.T) {
	var connections, requests atomic.Int64
	address := rawServer(t, func(c net.Conn) {
		if n := connections.Add(1); n > 2 {
			return
		}
		for {
			// The second request on a connection is read and answered by closing.
			if _, err := readRequest(c); err != nil || requests.Add(1) == 2 {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	s := newSink(t, nil)
	defer s.Close()
	for range 2 {
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), deliveryTo("http://"+address)).Class)
	}
	require.EqualValues(t, 2, connections.Load())
	require.EqualValues(t, 3, requests.Load())
	s.Close()
}

func TestL37_AGoawayDoesNotFailADelivery(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	config := &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}}
	var connections atomic.Int64
	address := rawServer(t, func(c net.Conn) { goingAway(tls.Server(c, config), connections.Add(1)) })
	s := newSink(t, nil)
	for range 3 {
		d := deliveryTo("https://" + address)
		d.Sink.HTTP.AllowInsecureTLS = true
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
	}
	require.EqualValues(t, 2, connections.Load())
	s.Close()
}

// goingAway serves HTTP/2 by hand: the second request on the first connection is refused by a GOAWAY.
func goingAway(c net.Conn, connection int64) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	framer := http2.NewFramer(c, c)
	_ = framer.WriteSettings()
	served := uint32(0)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if connection == 1 && served > 0 {
				_ = framer.WriteGoAway(served, http2.ErrCodeNo, nil)
				continue
			}
			served = f.StreamID
			// 0x89 is ":status: 204" in the static table of HPACK.
			_ = framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: f.StreamID, BlockFragment: []byte{0x89}, EndStream: true, EndHeaders: true,
			})
		}
	}
}

func TestCertificatesAreVerifiedUnlessConfiguredOtherwise(t *testing.T) {
	protocols := make(chan string, 1)
	tell := func(_ http.ResponseWriter, r *http.Request) { protocols <- r.Proto }
	r := httptest.NewUnstartedServer(http.HandlerFunc(tell))
	r.EnableHTTP2 = true
	r.Config.ErrorLog = quiet
	r.StartTLS()
	defer r.Close()
	s := newSink(t, nil)
	defer s.Close()
	d := deliveryTo(r.URL)
	require.Equal(t, transient("http: certificate not accepted"), s.Deliver(t.Context(), d))

	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	d.Sink.HTTP.CACertFile = file
	require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
	require.Equal(t, "HTTP/2.0", <-protocols)

	d.Sink.HTTP.CACertFile, d.Sink.HTTP.AllowInsecureTLS = "", true
	require.Equal(t, hook.Delivered, s.Deliver(t.Context(), d).Class)
	<-protocols
	require.EqualValues(t, 3, s.pools.count(), "each way to judge a certificate has connections of its own")

	d.Sink.HTTP.CACertFile = filepath.Join(t.TempDir(), "none")
	require.Equal(t, transient("http: cacertfile not usable"), s.Deliver(t.Context(), d))
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	d.Sink.HTTP.CACertFile = strings.Replace(file, "ca.pem", "./ca.pem", 1)
	require.Equal(t, transient("http: cacertfile not usable"), s.Deliver(t.Context(), d))
}

func TestI11_PoolsAreBoundedAndTheLeastRecentlyUsedMakesRoom(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	first, second := newReceiver(t, ok), newReceiver(t, ok)
	s := newSink(t, func(c *Config) { c.MaxPools = 2 })
	var busy sync.WaitGroup
	busy.Go(func() { s.Deliver(context.WithoutCancel(t.Context()), deliveryTo(slow.URL)) })
	<-arrived
	for _, r := range []*receiver{first, second, first} {
		require.Equal(t, hook.Delivered, s.Deliver(t.Context(), deliveryTo(r.URL)).Class)
	}
	require.EqualValues(t, 2, s.pools.count())
	require.EqualValues(t, 2, count(s.metrics.closedLimit))
	require.EqualValues(t, 2, first.connections.Load(), "its pool had made room")
	close(release)
	busy.Wait()
}

func TestI11_AnAttemptFailsWhenEveryPoolIsInUse(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	s := newSink(t, func(c *Config) { c.MaxPools = 1 })
	var busy sync.WaitGroup
	busy.Go(func() { s.Deliver(context.WithoutCancel(t.Context()), deliveryTo(slow.URL)) })
	<-arrived
	require.Equal(t, transient("http: pool_limit"), s.Deliver(t.Context(), deliveryTo(newReceiver(t, ok).URL)))
	require.EqualValues(t, 1, count(s.metrics.refused))
	close(release)
	busy.Wait()
}

func TestI11_IdlePoolsAreSwept(t *testing.T) {
	s := newSink(t, func(c *Config) { c.PoolIdle = time.Hour })
	require.Equal(t, hook.Delivered, s.Deliver(t.Context(), deliveryTo(newReceiver(t, ok).URL)).Class)
	s.pools.sweep(time.Now().Add(59 * time.Minute))
	require.EqualValues(t, 1, s.pools.count())
	s.pools.sweep(time.Now().Add(time.Hour))
	require.EqualValues(t, 0, s.pools.count())
	require.EqualValues(t, 1, count(s.metrics.closedIdle))
}

func ok(http.ResponseWriter, *http.Request) {}

func TestAClosedSinkLeavesNoConnectionAndOpensNone(t *testing.T) {
	r := newReceiver(t, ok)
	s := newSink(t, nil)
	open := s.pools.connections.dialer(new(net.Dialer).DialContext)
	address := r.Listener.Addr().String()
	conn, err := open(t.Context(), "tcp", address)
	require.NoError(t, err)
	other, err := open(t.Context(), "tcp", address)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	require.Len(t, s.pools.connections.open, 1, "a connection that is closed is forgotten")
	s.Close()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = open(t.Context(), "tcp", address)
	require.ErrorIs(t, err, errClosed)
}

// BenchmarkDeliver is beside BenchmarkBare, which sends the same bytes with nothing around them.
func BenchmarkDeliver(b *testing.B) {
	r := newReceiver(b, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	s := newSink(b, nil)
	d := deliveryTo(r.URL)
	d.Hook.Body = make([]byte, 512)
	for i := range 8 {
		d.Hook.Headers = append(d.Hook.Headers, hook.Header{Name: "x-header-" + strconv.Itoa(i), Value: "value"})
	}
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if s.Deliver(b.Context(), d).Class != hook.Delivered {
				b.Error("not delivered")
			}
		}
	})
}

func BenchmarkBare(b *testing.B) {
	r := newReceiver(b, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	body := make([]byte, 512)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			answer, err := client.Post(r.URL, "application/json", bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	})
}
