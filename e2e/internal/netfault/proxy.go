// Package netfault stands between two processes and takes the network away.
package netfault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

type mode int

const (
	passing mode = iota
	cutting
	freezing
)

// Proxy forwards TCP connections to one target until it is told otherwise. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	mode    mode
	closed  bool
	conns   map[net.Conn]struct{}
}

// Listen starts to forward connections to addr on to target. The caller owns the proxy and must Close it.
func Listen(addr, target string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", target, err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets every connection and every new one at once, as a host that is gone but whose network answers.
func (p *Proxy) Cut() { p.set(cutting) }

// Freeze keeps every connection open and lets no byte through, as a network that drops packets.
func (p *Proxy) Freeze() { p.set(freezing) }

// Heal forwards again. Bytes that were held back while frozen go on their way.
func (p *Proxy) Heal() { p.set(passing) }

// Close ends all connections and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.resetAll()
	p.changed.Broadcast()
	p.mu.Unlock()
	err := p.listener.Close()
	p.wg.Wait()
	return err
}

func (p *Proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = m
	if m == cutting {
		p.resetAll()
	}
	p.changed.Broadcast()
}

// resetAll runs under the lock.
func (p *Proxy) resetAll() {
	for c := range p.conns {
		reset(c)
		delete(p.conns, c)
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && p.track(c) {
			p.wg.Go(func() { p.serve(c) })
		}
	}
}

// track takes a connection in, or resets it where none may be.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == cutting {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.gate() {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil || !p.track(server) {
		return
	}
	defer p.drop(server)
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client) })
	both.Go(func() { p.copy(client, server) })
	both.Wait()
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *Proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.gate() {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			p.halfClose(to, from)
			return
		}
	}
}

// halfClose hands the end of one direction on, so that the other can finish.
func (p *Proxy) halfClose(to, from net.Conn) {
	if c, ok := to.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	if c, ok := from.(*net.TCPConn); ok {
		_ = c.CloseRead()
	}
}

// gate waits while the proxy is frozen and says whether bytes may pass then.
func (p *Proxy) gate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == freezing && !p.closed {
		p.changed.Wait()
	}
	return !p.closed && p.mode == passing
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
