package tikv_test

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy forwards TCP connections to a target, until it is told to cut or to freeze them.
type proxy struct {
	addr string

	mu       sync.Mutex
	change   sync.Cond
	target   string
	listener net.Listener
	conns    map[net.Conn]struct{}
	frozen   bool
	ended    bool
	running  sync.WaitGroup
}

func newProxy(t testing.TB) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: l.Addr().String(), conns: map[net.Conn]struct{}{}}
	p.change.L = &p.mu
	p.listen(l)
	t.Cleanup(p.end)
	return p
}

func (p *proxy) forwardTo(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *proxy) listen(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = l
	p.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(c) })
		}
	})
}

func (p *proxy) serve(in net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.running.Go(func() { p.pump(in, out) })
	p.pump(out, in)
}

// pump copies until either side closes. What is read while the proxy is frozen goes on when it thaws.
func (p *proxy) pump(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !p.thawed() {
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) thawed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && !p.ended {
		p.change.Wait()
	}
	return !p.ended
}

// cut closes every connection and refuses new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// mend takes connections again.
func (p *proxy) mend(t testing.TB) {
	l, err := net.Listen("tcp", p.addr)
	require.NoError(t, err)
	p.listen(l)
}

// freeze lets connections stand, new ones too, and forwards nothing.
func (p *proxy) freeze(frozen bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = frozen
	p.change.Broadcast()
}

func (p *proxy) end() {
	p.cut()
	p.mu.Lock()
	p.ended = true
	p.change.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
}
