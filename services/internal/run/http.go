package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTP is a part that serves a listener. Stopped, it takes no new connection and lets the requests that it has end for
// at most drain; then it closes the connections of the rest and cancels their contexts, which is no error, and returns
// when their handlers have returned. It owns the listener, and the server's BaseContext.
func HTTP(name string, server *http.Server, l net.Listener, drain time.Duration) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		base, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		handlers := count{idle: make(chan struct{})}
		server.BaseContext = func(net.Listener) context.Context { return base }
		server.Handler = handlers.of(server.Handler)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		select {
		case err := <-ended:
			_ = server.Close() // of a listener that has failed already
			cancel()
			handlers.wait()
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		case <-ctx.Done():
		}
		draining, stop := context.WithTimeout(base, drain)
		defer stop()
		if server.Shutdown(draining) != nil {
			_ = server.Close() // only the listener's error, and it is closed
			cancel()
		}
		err := <-ended
		handlers.wait()
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	}}
}

// count of the handlers that run.
type count struct {
	mu      sync.Mutex
	running int
	over    bool
	idle    chan struct{} // closed when none runs any more
}

func (c *count) of(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.enter() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer c.leave()
		next.ServeHTTP(w, r)
	})
}

func (c *count) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.running++
	return true
}

func (c *count) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.over && c.running == 0 {
		close(c.idle)
	}
}

// wait lets no handler begin and returns when the last has returned.
func (c *count) wait() {
	c.mu.Lock()
	c.over = true
	if c.running == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	<-c.idle
}
