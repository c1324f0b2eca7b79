package lean

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Load is one run of the generator.
type Load struct {
	// Addr and Path are where the requests go.
	Addr, Path string
	// Conns are connections with one request in flight each.
	Conns int
	// Body is the number of bytes of a body.
	Body int
	// Rate is the offered load per second; 0 is as fast as the answers come.
	Rate float64
	// Duration ends the run; what is in flight is not waited for. Count ends it after so many requests, all answered.
	// One of them must be set.
	Duration time.Duration
	Count    int
	// Times keeps the time at which each accepted hook's answer came.
	Times bool
}

// Answered is when one hook's answer came.
type Answered struct {
	ID string
	At time.Time
}

// Outcome of a run.
type Outcome struct {
	// Accepted counts the 2xx, Refused all other answers, Broken the requests without one.
	Accepted, Refused, Broken int
	Elapsed                   time.Duration
	Times                     []Answered
}

// Run sends.
func (l Load) Run(ctx context.Context) (Outcome, error) {
	request := l.request()
	began := time.Now()
	if l.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(l.Duration))
		defer cancel()
	}
	var next atomic.Int64
	senders := make([]sender, l.Conns)
	var wg sync.WaitGroup
	for i := range senders {
		senders[i] = sender{load: l, request: request, began: began, next: &next}
		wg.Go(func() { senders[i].run(ctx) })
	}
	wg.Wait()
	out := Outcome{Elapsed: time.Since(began)}
	for i := range senders {
		s := &senders[i]
		out.Accepted += s.out.Accepted
		out.Refused += s.out.Refused
		out.Broken += s.out.Broken
		out.Times = append(out.Times, s.out.Times...)
	}
	if out.Accepted == 0 {
		return out, fmt.Errorf("load: nothing was accepted by %s%s: %d refused, %d broken", l.Addr, l.Path, out.Refused, out.Broken)
	}
	return out, nil
}

func (l Load) request() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", l.Path, l.Addr, l.Body)
	for i := range l.Body {
		b.WriteByte(byte('a' + i%26))
	}
	return b.Bytes()
}

// sender drives one connection.
type sender struct {
	load    Load
	request []byte
	began   time.Time
	next    *atomic.Int64
	out     Outcome
	body    []byte
}

func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.load.Addr)
		if err != nil {
			s.out.Broken++
			return
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		again := s.converse(ctx, c)
		stop()
		_ = c.Close()
		if !again {
			return
		}
	}
}

// converse returns false when the run is over, true when the connection is.
func (s *sender) converse(ctx context.Context, c net.Conn) bool {
	r := bufio.NewReaderSize(c, 4096)
	for {
		if !s.turn(ctx) {
			return false
		}
		m, err := s.exchange(c, r)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			s.out.Broken++
			return true
		case m.status/100 == 2:
			s.accepted()
		default:
			s.out.Refused++
		}
		if m.close {
			return true
		}
	}
}

func (s *sender) turn(ctx context.Context) bool {
	n := s.next.Add(1)
	if s.load.Count > 0 && n > int64(s.load.Count) {
		return false
	}
	if s.load.Rate == 0 {
		return true
	}
	wait := time.Until(s.began.Add(time.Duration(float64(n) / s.load.Rate * float64(time.Second))))
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *sender) exchange(c net.Conn, r *bufio.Reader) (message, error) {
	if _, err := c.Write(s.request); err != nil {
		return message{}, err
	}
	m, err := readHead(r)
	if err != nil {
		return m, err
	}
	if cap(s.body) < m.length {
		s.body = make([]byte, m.length)
	}
	s.body = s.body[:m.length]
	_, err = io.ReadFull(r, s.body)
	return m, err
}

func (s *sender) accepted() {
	s.out.Accepted++
	if !s.load.Times {
		return
	}
	at := time.Now()
	if i := bytes.Index(s.body, []byte(`"id":"`)); i >= 0 && len(s.body) >= i+6+36 {
		s.out.Times = append(s.out.Times, Answered{ID: string(s.body[i+6 : i+6+36]), At: at})
	}
}
