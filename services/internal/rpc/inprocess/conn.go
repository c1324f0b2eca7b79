package inprocess

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Conn calls a server while the health that it was made for says SERVING.
type Conn struct {
	server  *Server
	ctx     context.Context
	close   context.CancelFunc
	watched sync.WaitGroup

	mu      sync.Mutex
	known   bool // whether the service serves
	serving bool
	changed chan struct{}
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// Connect returns a connection for a service whose health the server's health service knows, or for an empty one, which
// always serves. A call fails at once with UNAVAILABLE while the service does not serve, unless it waits for ready. The
// caller closes the connection.
func (s *Server) Connect(service string) *Conn {
	c := &Conn{server: s, known: service == "", serving: service == "", changed: make(chan struct{})}
	c.ctx, c.close = context.WithCancel(context.Background())
	if service != "" {
		c.watched.Go(func() { c.watch(service) })
	}
	return c
}

// Close ends the calls of the connection.
func (c *Conn) Close() error {
	c.close()
	c.watched.Wait()
	return nil
}

// A watch that ends is opened again after a pause that doubles from firstPause up to lastPause, until one is answered.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// watch follows the service's health until the connection is closed or the server stops. While it cannot, the service
// does not serve.
func (c *Conn) watch(service string) {
	defer c.set(false)
	pause := firstPause
	for {
		answered, err := c.follow(service)
		c.set(false)
		if errors.Is(err, errStopping) {
			return
		}
		if answered {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// follow takes over what one watch says until it ends. A server without a health service serves everything.
func (c *Conn) follow(service string) (answered bool, err error) {
	s, err := c.open(c.ctx, healthpb.Health_Watch_FullMethodName)
	if status.Code(err) == codes.Unimplemented {
		c.set(true)
		<-c.ctx.Done()
		return true, errClosing
	}
	if err != nil {
		return false, err
	}
	if err := s.SendMsg(&healthpb.HealthCheckRequest{Service: service}); err != nil {
		return false, err
	}
	for {
		var m healthpb.HealthCheckResponse
		if err := s.RecvMsg(&m); err != nil {
			return answered, err
		}
		answered = true
		c.set(m.GetStatus() == healthpb.HealthCheckResponse_SERVING)
	}
}

func (c *Conn) set(serving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || c.serving != serving {
		c.known, c.serving = true, serving
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

var errNotServing = status.Error(codes.Unavailable, "service does not serve")

// ready returns nil once the service serves. Who does not wait for that waits until it is known.
func (c *Conn) ready(ctx context.Context, wait bool) error {
	for {
		c.mu.Lock()
		known, serving, changed := c.known, c.serving, c.changed
		c.mu.Unlock()
		switch {
		case c.ctx.Err() != nil:
			return errClosing
		case serving:
			return nil
		case known && !wait:
			return errNotServing
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-c.ctx.Done():
		}
	}
}

// options are the call options that mean something here.
type options struct {
	wait             bool
	headers, trailer []grpc.CallOption
}

// read refuses options that would change a call and are not understood: they must not be lost in silence.
func read(list []grpc.CallOption) (o options, err error) {
	for _, one := range list {
		switch one := one.(type) {
		case grpc.EmptyCallOption, grpc.StaticMethodCallOption: // say nothing about the call
		case grpc.FailFastCallOption:
			o.wait = !one.FailFast
		case grpc.HeaderCallOption:
			o.headers = append(o.headers, one)
		case grpc.TrailerCallOption:
			o.trailer = append(o.trailer, one)
		default:
			return o, notUnderstood(one)
		}
	}
	return o, nil
}

func notUnderstood(o grpc.CallOption) error {
	return status.Errorf(codes.Internal, "call option %T is not understood within a process", o)
}

// report fills in what the options of a unary call ask for.
func (o options) report(c *call) {
	for _, one := range o.headers {
		*one.(grpc.HeaderCallOption).HeaderAddr = c.header()
	}
	for _, one := range o.trailer {
		*one.(grpc.TrailerCallOption).TrailerAddr = c.trailer()
	}
}

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, request, answer any, list ...grpc.CallOption) error {
	o, err := read(list)
	if err != nil {
		return err
	}
	if err := c.ready(ctx, o.wait); err != nil {
		return err
	}
	message, ok := request.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is no message", request)
	}
	s, err := c.open(ctx, method)
	if err != nil {
		return err
	}
	if s.SendMsg(proto.Clone(message)) == nil { // it is the caller's again, even where the handler outlives the call
		err = s.down.receive(s.ended, answer, clone)
	}
	if err == nil || errors.Is(err, io.EOF) {
		<-s.ended
		err = s.err
	}
	o.report(s.call)
	return err
}

// NewStream implements grpc.ClientConnInterface. A stream has methods for its headers and trailers, and takes no options
// for them.
func (c *Conn) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, list ...grpc.CallOption) (grpc.ClientStream, error) {
	o, err := read(list)
	if err != nil {
		return nil, err
	}
	for _, one := range slices.Concat(o.headers, o.trailer) {
		return nil, notUnderstood(one)
	}
	if err := c.ready(ctx, o.wait); err != nil {
		return nil, err
	}
	return c.open(ctx, method)
}

// open begins a call.
func (c *Conn) open(ctx context.Context, name string) (clientStream, error) {
	m, err := c.server.find(name)
	if err != nil {
		return clientStream{}, err
	}
	if err := ctx.Err(); err != nil {
		return clientStream{}, status.FromContextError(err).Err()
	}
	s := clientStream{call: newCall(ctx, name), one: m.stream != nil && !m.stream.ServerStreams}
	if err := c.server.start(ctx, s.call, m); err != nil {
		return clientStream{}, err
	}
	s.watch(c.ctx, func() error { return errClosing })
	return s, nil
}
