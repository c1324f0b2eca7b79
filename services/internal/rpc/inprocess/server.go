// Package inprocess is gRPC between the parts of one process. Services, interceptors, metadata, deadlines and statuses
// are gRPC's; there is no connection, and messages are not encoded.
//
// A call's request and answer are copied. A stream's messages are handed on by reference, as what they point at: as with
// gRPC, the sender leaves a message alone once it is sent, and here the receiver must, too.
package inprocess

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server serves what is registered to the connections that Connect makes. Use New.
type Server struct {
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	methods map[string]method
	cut     context.Context // ends when calls are cut off
	cutOff  context.CancelFunc

	mu       sync.Mutex
	calls    int
	draining bool
	empty    chan struct{} // closed when draining and no call is left
}

// method is one of a service's, unary or not.
type method struct {
	service any
	unary   *grpc.MethodDesc
	stream  *grpc.StreamDesc
}

// New makes a server with interceptors, each of which may be nil.
func New(unary grpc.UnaryServerInterceptor, stream grpc.StreamServerInterceptor) *Server {
	s := &Server{unary: unary, stream: stream, methods: make(map[string]method), empty: make(chan struct{})}
	if stream == nil {
		s.stream = func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			return h(srv, ss)
		}
	}
	s.cut, s.cutOff = context.WithCancel(context.Background())
	return s
}

// RegisterService implements grpc.ServiceRegistrar. Services are registered before the first call.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	for i := range d.Methods {
		s.methods["/"+d.ServiceName+"/"+d.Methods[i].MethodName] = method{service: service, unary: &d.Methods[i]}
	}
	for i := range d.Streams {
		s.methods["/"+d.ServiceName+"/"+d.Streams[i].StreamName] = method{service: service, stream: &d.Streams[i]}
	}
}

// Run serves until ctx ends; calls that come before find it serving, too. Then it takes no new call, lets those that it
// has end for at most drain, and cuts the rest off, which is no error. It returns when all handlers have returned.
func (s *Server) Run(ctx context.Context, drain time.Duration) error {
	<-ctx.Done()
	s.mu.Lock()
	s.draining = true
	if s.calls == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	timer := time.AfterFunc(drain, s.cutOff)
	<-s.empty
	timer.Stop()
	s.cutOff()
	return nil
}

var (
	errStopping = status.Error(codes.Unavailable, "server is stopping")
	errCutOff   = status.Error(codes.Unavailable, "server has stopped")
	errClosing  = status.Error(codes.Canceled, "connection is closing")
)

// begin enters a call, which leave ends.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errStopping
	}
	s.calls++
	return nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 && s.draining {
		close(s.empty)
	}
}

// start has a method handle a call, in a goroutine of its own.
func (s *Server) start(ctx context.Context, c *call, m method) error {
	if err := s.begin(); err != nil {
		return err
	}
	c.serverCtx, c.cancel = serverContext(ctx, c)
	c.watch(ctx, func() error { return status.FromContextError(ctx.Err()).Err() })
	c.watch(s.cut, func() error { return errCutOff })
	go func() {
		defer s.leave()
		defer c.cancel()
		c.end(s.handle(c, m))
	}()
	return nil
}

// handle runs the method under the interceptors and returns a status, or nil.
func (s *Server) handle(c *call, m method) error {
	err := s.invoke(c, m)
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

func (s *Server) invoke(c *call, m method) error {
	if m.stream != nil {
		info := &grpc.StreamServerInfo{
			FullMethod: c.method, IsClientStream: m.stream.ClientStreams, IsServerStream: m.stream.ServerStreams,
		}
		return s.stream(m.service, serverStream{c}, info, m.stream.Handler)
	}
	answer, err := m.unary.Handler(m.service, c.serverCtx, func(into any) error { return c.up.receive(c.ended, into, share) }, s.unary)
	if err != nil {
		return err
	}
	return serverStream{c}.SendMsg(answer)
}

func (s *Server) find(name string) (method, error) {
	m, ok := s.methods[name]
	if !ok {
		return m, status.Error(codes.Unimplemented, fmt.Sprintf("unknown method %s", name))
	}
	return m, nil
}
