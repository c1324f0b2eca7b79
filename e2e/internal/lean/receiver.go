package lean

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

var confirmation = []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

// Receiver confirms every request after a fixed delay and counts.
type Receiver struct {
	// Delay before an answer.
	Delay time.Duration
	// First keeps when each hook arrived first, and counts each once.
	First bool
	// Hang answers nobody: a connection is held until its sender closes it.
	Hang bool

	mu      sync.Mutex
	count   int
	repeats int
	first   map[[36]byte]time.Time
	changed chan struct{}
	want    int
}

// Serve answers on l until ctx ends, and returns when no connection is served any more.
func (r *Receiver) Serve(ctx context.Context, l net.Listener) error {
	r.mu.Lock()
	r.first = map[[36]byte]time.Time{}
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			cancel()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		conns.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer func() { _ = c.Close() }()
			r.serve(c)
		})
	}
}

func (r *Receiver) serve(c net.Conn) {
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		m, err := readHead(in)
		if err != nil {
			return
		}
		arrived := time.Now()
		if r.Hang {
			_, _ = io.Copy(io.Discard, in) // until the sender has had enough
			return
		}
		if n, err := io.CopyN(io.Discard, in, int64(m.length)); err != nil || n != int64(m.length) {
			return
		}
		if r.Delay > 0 {
			timer := time.NewTimer(r.Delay)
			<-timer.C
		}
		r.arrived(m.id, arrived)
		if _, err := c.Write(confirmation); err != nil {
			return
		}
	}
}

func (r *Receiver) arrived(id [36]byte, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.First {
		if _, again := r.first[id]; again {
			r.repeats++
			return
		}
		r.first[id] = at
	}
	if r.count++; r.changed != nil && r.count >= r.want {
		close(r.changed)
		r.changed = nil
	}
}

// Count is the number of requests confirmed so far, or of hooks where each counts once.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Repeats is the number of requests confirmed so far whose hook had been confirmed before, where each counts once.
func (r *Receiver) Repeats() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.repeats
}

// Until returns when the count has reached n. One caller at a time.
func (r *Receiver) Until(ctx context.Context, n int) error {
	r.mu.Lock()
	if r.count >= n {
		r.mu.Unlock()
		return nil
	}
	reached := make(chan struct{})
	r.want, r.changed = n, reached
	r.mu.Unlock()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Arrivals are the hooks with the time of their first arrival.
func (r *Receiver) Arrivals() []Answered {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Answered, 0, len(r.first))
	for id, at := range r.first {
		all = append(all, Answered{ID: string(id[:]), At: at})
	}
	return all
}
