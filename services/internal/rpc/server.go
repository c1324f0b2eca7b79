package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"ankusa.dev/services/internal/rpc/inprocess"
	"ankusa.dev/services/internal/run"
)

// MaxMessage is the default bound of one message, in bytes, in both directions.
const MaxMessage = 16 << 20

// MaxStreams is the default bound of the calls of one connection that are under way.
const MaxStreams = 1024

// A peer that is frozen or cut off is noticed after pingEvery and pingTimeout together, though its host still answers.
const (
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
)

// ServerOptions of NewServer.
type ServerOptions struct {
	Log      *zap.Logger
	Security Security
	// MaxReceive bounds a received message, in bytes; 0 stands for MaxMessage.
	MaxReceive int
	// MaxStreams bounds the calls of one connection that are under way, past which its client holds further ones back; 0
	// stands for the constant.
	MaxStreams uint32
	// Health is served beside what else is registered. Several servers may share it.
	Health *health.Server
}

// NewServer returns a server without services. A handler that panics costs its call alone: the caller gets INTERNAL and
// the log the stack. An error that is no status reaches the caller as INTERNAL without its text, and the log with it.
func NewServer(o ServerOptions) *grpc.Server {
	if o.MaxReceive == 0 {
		o.MaxReceive = MaxMessage
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = MaxStreams
	}
	s := grpc.NewServer(
		grpc.Creds(o.Security.forServer()),
		grpc.MaxRecvMsgSize(o.MaxReceive),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(unary(o.Log)),
		grpc.StreamInterceptor(stream(o.Log)),
	)
	healthpb.RegisterHealthServer(s, o.Health)
	return s
}

// NewInside is NewServer for callers of the same process, with the same guards. Messages are not bounded.
func NewInside(log *zap.Logger, h *health.Server) *inprocess.Server {
	s := inprocess.New(unary(log), stream(log))
	healthpb.RegisterHealthServer(s, h)
	return s
}

// unary guards calls, and recovers their panics.
func unary(log *zap.Logger) grpc.UnaryServerInterceptor {
	guard := guard{log}
	inner := recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(guard.recovered))
	return func(ctx context.Context, r any, i *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		return guard.unary(ctx, r, i, func(ctx context.Context, r any) (any, error) { return inner(ctx, r, i, h) })
	}
}

// stream is unary for streams.
func stream(log *zap.Logger) grpc.StreamServerInterceptor {
	guard := guard{log}
	inner := recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(guard.recovered))
	return func(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return guard.stream(srv, s, i, func(srv any, s grpc.ServerStream) error { return inner(srv, s, i, h) })
	}
}

// Serve is a part that serves a listener, which it owns. Stopped, it takes no new call, lets the calls that it has end
// for at most drain, and then cuts the rest off, which is no error. It returns when all handlers have returned.
func Serve(name string, s *grpc.Server, l net.Listener, drain time.Duration) run.Part {
	return run.Part{Name: name, Run: func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(l) }()
		select {
		case err := <-ended:
			s.Stop() // of a listener that has failed already
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		case <-ctx.Done():
		}
		cutOff := time.AfterFunc(drain, s.Stop)
		s.GracefulStop()
		cutOff.Stop()
		// A server that was stopped before it began to serve says so.
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	}}
}

// guard keeps internals away from callers.
type guard struct{ log *zap.Logger }

func (g guard) recovered(_ context.Context, p any) error {
	g.log.Error("call panicked", zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	return errInternal
}

var errInternal = status.Error(codes.Internal, "internal error")

func (g guard) unary(ctx context.Context, r any, i *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	response, err := h(ctx, r)
	return response, g.outward(i.FullMethod, err)
}

func (g guard) stream(srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	return g.outward(i.FullMethod, h(srv, s))
}

// outward is the error that a caller may see.
func (g guard) outward(method string, err error) error {
	if err == nil {
		return nil
	}
	if s := status.FromContextError(err); s.Code() != codes.Unknown {
		return s.Err()
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.Unknown {
		return err
	}
	g.log.Error("call failed", zap.String("method", method), zap.Error(err))
	return errInternal
}
