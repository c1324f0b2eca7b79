package httpsink

import (
	"container/list"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"
)

var (
	errPoolLimit = errors.New("http: pool_limit")
	errAuthority = errors.New("http: cacertfile not usable")
)

const (
	// connectTime bounds a dial, and a TLS handshake after it, that outlive their request.
	connectTime = 10 * time.Second
	// maxHeaderBytes bounds the header of a response.
	maxHeaderBytes = 64 << 10
	// An HTTP/2 connection on which nothing comes is asked for a sign of life, and closed without one.
	pingAfter, pingTime = 15 * time.Second, 5 * time.Second
)

// poolKey is a receiver's address and how its certificate is judged.
type poolKey struct {
	secure, unverified bool
	host, authority    string
}

// pool holds the connections to one receiver.
type pool struct {
	key       poolKey
	transport *http.Transport
	users     int
	used      time.Time
	place     *list.Element
}

// pools bounds the receivers with connections: the least recently used one without a delivery makes room.
type pools struct {
	config      Config
	metrics     *metrics
	connections connections

	mu     sync.Mutex
	byKey  map[poolKey]*pool
	recent list.List // of *pool, the most recently used first
}

func newPools(c Config, m *metrics) *pools {
	return &pools{
		config: c, metrics: m, byKey: map[poolKey]*pool{},
		connections: connections{open: map[*connection]struct{}{}},
	}
}

// acquire takes the receiver's pool for one delivery. It fails with errPoolLimit when MaxPools others are in use.
func (p *pools) acquire(k poolKey) (*pool, error) {
	if taken := p.existing(k); taken != nil {
		return taken, nil
	}
	transport, err := p.transport(k)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if taken := p.take(k); taken != nil { // another delivery made it meanwhile
		return taken, nil
	}
	p.sweep(time.Now())
	if len(p.byKey) >= p.config.MaxPools && !p.evict() {
		p.metrics.refused.Inc()
		return nil, errPoolLimit
	}
	made := &pool{key: k, transport: transport}
	made.place = p.recent.PushFront(made)
	p.byKey[k] = made
	return p.take(k), nil
}

func (p *pools) existing(k poolKey) *pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(k)
}

func (p *pools) take(k poolKey) *pool {
	taken := p.byKey[k]
	if taken != nil {
		taken.users++
		p.recent.MoveToFront(taken.place)
	}
	return taken
}

func (p *pools) release(taken *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken.users--
	taken.used = time.Now()
	if p.byKey[taken.key] == taken { // unless the sink was closed meanwhile
		p.recent.MoveToFront(taken.place)
	}
}

// sweep closes the pools that have been idle for long.
func (p *pools) sweep(now time.Time) {
	for e := p.recent.Back(); e != nil; {
		last := e.Value.(*pool)
		e = e.Prev()
		if last.users == 0 && now.Sub(last.used) < p.config.PoolIdle {
			return // those before it were used later
		}
		if last.users == 0 {
			p.drop(last, p.metrics.closedIdle)
		}
	}
}

func (p *pools) evict() bool {
	for e := p.recent.Back(); e != nil; e = e.Prev() {
		if last := e.Value.(*pool); last.users == 0 {
			p.drop(last, p.metrics.closedLimit)
			return true
		}
	}
	return false
}

func (p *pools) drop(gone *pool, why interface{ Inc() }) {
	p.recent.Remove(gone.place)
	delete(p.byKey, gone.key)
	gone.transport.CloseIdleConnections()
	why.Inc()
}

// count is the number of pools, without those that have been idle for long.
func (p *pools) count() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(time.Now())
	return float64(len(p.byKey))
}

// close leaves no connection. No delivery may be running.
func (p *pools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, gone := range p.byKey {
		gone.transport.CloseIdleConnections()
	}
	clear(p.byKey)
	p.recent.Init()
	p.connections.close()
}

// transport goes to no proxy, asks for no encoding, and checks each address that it dials.
func (p *pools) transport(k poolKey) (*http.Transport, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: k.unverified}
	if k.authority != "" {
		pem, err := os.ReadFile(k.authority)
		if err != nil {
			return nil, errAuthority
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errAuthority
		}
	}
	dialer := p.config.Policy.Dialer()
	dialer.Timeout = connectTime
	return &http.Transport{
		DialContext: p.connections.dialer(dialer.DialContext), TLSClientConfig: secure, TLSHandshakeTimeout: connectTime,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTime},
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns: p.config.IdleConnections, MaxIdleConnsPerHost: p.config.IdleConnections,
		IdleConnTimeout: p.config.ConnectionIdle,
	}, nil
}
