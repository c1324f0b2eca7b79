package inprocess

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// call is one call, seen from both sides.
type call struct {
	method    string
	up, down  *queue
	clientCtx context.Context
	serverCtx context.Context
	cancel    context.CancelFunc // of serverCtx

	ended chan struct{}
	err   error // a status, or nil for success; valid once ended

	mu       sync.Mutex
	over     bool
	release  []func() bool // watches, until the call is over
	headers  metadata.MD
	sent     bool // the headers
	answered chan struct{}
	trailers metadata.MD
}

func newCall(ctx context.Context, method string) *call {
	return &call{
		method: method, up: newQueue(), down: newQueue(), clientCtx: ctx,
		ended: make(chan struct{}), answered: make(chan struct{}),
	}
}

// end gives the call its status, once: that of the handler, or of whatever ended the call before it.
func (c *call) end(err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over, c.err = true, err
	release := c.release
	c.release = nil
	c.mu.Unlock()
	close(c.ended)
	c.cancel()
	for _, stop := range release {
		stop()
	}
}

// watch ends the call with ctx.
func (c *call) watch(ctx context.Context, why func() error) {
	stop := context.AfterFunc(ctx, func() { c.end(why()) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		stop()
		return
	}
	c.release = append(c.release, stop)
}

func (c *call) setHeader(md metadata.MD, send bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		if send || md.Len() > 0 {
			return status.Error(codes.Internal, "headers were sent before")
		}
		return nil
	}
	c.headers = metadata.Join(c.headers, md)
	if send {
		c.sent = true
		close(c.answered)
	}
	return nil
}

// answer sends the headers with the first message, where they were not sent before.
func (c *call) answer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sent {
		c.sent = true
		close(c.answered)
	}
}

func (c *call) setTrailer(md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailers = metadata.Join(c.trailers, md)
}

func (c *call) header() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.headers.Copy()
}

func (c *call) trailer() metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trailers.Copy()
}

// clientStream is the caller's side.
type clientStream struct {
	*call
	one bool // the server sends one message at most
}

var _ grpc.ClientStream = clientStream{}

func (s clientStream) Context() context.Context { return s.clientCtx }

// Header waits for the headers, which come with the first message or before it. It returns nil where the call has ended
// without: RecvMsg has its status.
func (s clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.answered:
	case <-s.ended:
	}
	select {
	case <-s.answered:
		return s.header(), nil
	default:
		return nil, nil
	}
}

func (s clientStream) Trailer() metadata.MD { return s.trailer() }

func (s clientStream) CloseSend() error {
	s.up.close()
	return nil
}

// SendMsg fails with io.EOF when the call has ended: RecvMsg has its status.
func (s clientStream) SendMsg(m any) error {
	if !s.up.send(s.ended, m) {
		return io.EOF
	}
	return nil
}

func (s clientStream) RecvMsg(m any) error {
	err := s.down.receive(s.ended, m, share)
	switch {
	case errors.Is(err, io.EOF):
		if s.err != nil {
			return s.err
		}
		return io.EOF
	case err == nil && s.one: // the status comes right behind the only message
		<-s.ended
		return s.err
	}
	return err
}

// serverStream is the handler's side.
type serverStream struct{ *call }

var _ grpc.ServerStream = serverStream{}

func (s serverStream) Context() context.Context { return s.serverCtx }

func (s serverStream) SetHeader(md metadata.MD) error  { return s.setHeader(md, false) }
func (s serverStream) SendHeader(md metadata.MD) error { return s.setHeader(md, true) }
func (s serverStream) SetTrailer(md metadata.MD)       { s.setTrailer(md) }

func (s serverStream) SendMsg(m any) error {
	s.answer()
	if !s.down.send(s.ended, m) {
		return s.gone()
	}
	return nil
}

func (s serverStream) RecvMsg(m any) error {
	err := s.up.receive(s.ended, m, share)
	if !errors.Is(err, io.EOF) {
		return err
	}
	select {
	case <-s.ended:
		return s.gone()
	default:
		return io.EOF
	}
}

// gone is what a handler is told whose call has ended without it.
func (s serverStream) gone() error {
	if s.err != nil {
		return s.err
	}
	return status.Error(codes.Canceled, "call has ended")
}

// serverContext has the deadline, the end and the metadata of the caller's context, and none of its values.
func serverContext(ctx context.Context, c *call) (context.Context, context.CancelFunc) {
	md, _ := metadata.FromOutgoingContext(ctx)
	inner := metadata.NewIncomingContext(bare{ctx}, md)
	inner = peer.NewContext(inner, &peer.Peer{Addr: address{}, LocalAddr: address{}})
	inner = grpc.NewContextWithServerTransportStream(inner, transport{c})
	return context.WithCancel(inner)
}

// bare is a context without values.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }

// AfterFunc spares the context package a goroutine.
func (b bare) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(b.Context, f) }

// address is where all calls come from.
type address struct{}

func (address) Network() string { return "inprocess" }
func (address) String() string  { return "inprocess" }

// transport lets a unary handler set headers.
type transport struct{ *call }

func (t transport) Method() string                  { return t.method }
func (t transport) SetHeader(md metadata.MD) error  { return t.setHeader(md, false) }
func (t transport) SendHeader(md metadata.MD) error { return t.setHeader(md, true) }
func (t transport) SetTrailer(md metadata.MD) error {
	t.setTrailer(md)
	return nil
}
