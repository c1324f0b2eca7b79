package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/credentials"
)

// handshakes logs the TLS handshakes that fail: neither the server nor a client that goes on dialling tells anybody else
// why a connection does not come about.
type handshakes struct {
	credentials.TransportCredentials
	log *zap.Logger
}

// Bounds of what strangers can have logged: in a second the first few of a kind, and then one of many.
const (
	handshakesFirst = 5
	handshakesThen  = 1000
)

func logged(c credentials.TransportCredentials, log *zap.Logger) credentials.TransportCredentials {
	return handshakes{c, log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, handshakesFirst, handshakesThen)
	}))}
}

// ClientHandshake implements credentials.TransportCredentials.
func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil && ctx.Err() == nil {
		h.log.Warn("TLS handshake with a server failed", zap.Stringer("address", raw.RemoteAddr()), zap.Error(err))
	}
	return conn, info, err
}

// ServerHandshake implements credentials.TransportCredentials. A connection that says nothing at all is no failure.
func (h handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) {
		h.log.Warn("TLS handshake with a client failed", zap.Stringer("address", raw.RemoteAddr()), zap.Error(err))
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.log}
}
