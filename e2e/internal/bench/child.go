package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"ankusa.dev/e2e/internal/bare"
	"ankusa.dev/e2e/internal/lean"
)

// The kinds of process that a benchmark starts beside the product.
const (
	childLoad     = "load"
	childReceiver = "receiver"
	childStore    = "store"
	childRelay    = "relay"
	childDrain    = "drain"
)

// receiverSpec says how a receiver listens, and where it is asked what it saw.
type receiverSpec struct {
	Listen, Control string
	Delay           time.Duration
	First, Hang     bool
}

// serverSpec says how a bare opponent listens.
type serverSpec struct {
	Listen string
	Dir    string // of the store
	To     string // of the relay
	Conns  int
}

// drainSpec says what a plain client posts.
type drainSpec struct {
	URL               string
	N, Workers, Bytes int
}

// Child is one of the processes that stand around the product. It runs until it is done or ctx ends.
func Child(ctx context.Context, kind, spec string, out io.Writer) error {
	switch kind {
	case childLoad:
		return child(spec, func(l lean.Load) error {
			o, err := l.Run(ctx)
			return errors.Join(json.NewEncoder(out).Encode(o), err)
		})
	case childDrain:
		return child(spec, func(s drainSpec) error {
			took, err := bare.Drain(ctx, s.URL, s.N, s.Workers, s.Bytes)
			return errors.Join(json.NewEncoder(out).Encode(took), err)
		})
	case childReceiver:
		return child(spec, func(s receiverSpec) error { return serveReceiver(ctx, s) })
	case childStore:
		return child(spec, func(s serverSpec) error { return serveStore(ctx, s) })
	case childRelay:
		return child(spec, func(s serverSpec) error {
			client := bare.Client(s.Conns)
			defer client.CloseIdleConnections()
			return serve(ctx, s.Listen, bare.Relay{Client: client, To: s.To})
		})
	default:
		return fmt.Errorf("no such process: %q", kind)
	}
}

func child[S any](spec string, run func(S) error) error {
	var s S
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return fmt.Errorf("spec %s: %w", spec, err)
	}
	return run(s)
}

func serveStore(ctx context.Context, s serverSpec) error {
	db, err := pebble.Open(s.Dir, &pebble.Options{Logger: quiet{}})
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, s.Listen, bare.Store{DB: db}), db.Close())
}

// quiet drops the store's own chatter.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// serve answers /ready itself and everything else by h.
func serve(ctx context.Context, addr string, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/", h)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func serveReceiver(ctx context.Context, s receiverSpec) error {
	r := &lean.Receiver{Delay: s.Delay, First: s.First, Hang: s.Hang}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(r.Count()) })
	mux.HandleFunc("GET /repeats", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(r.Repeats()) })
	mux.HandleFunc("GET /arrivals", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(r.Arrivals()) })
	mux.HandleFunc("GET /until/{n}", func(w http.ResponseWriter, req *http.Request) {
		n, err := strconv.Atoi(req.PathValue("n"))
		if err == nil {
			err = r.Until(req.Context(), n)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(time.Now())
	})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- r.Serve(ctx, l) }()
	err = serve(ctx, s.Control, mux)
	cancel()
	return errors.Join(err, <-ended)
}
