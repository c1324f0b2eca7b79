package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	_ "google.golang.org/grpc/health" // makes clients heed the health of the service that they ask for
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/test/bufconn"
)

const (
	connectTimeout = 5 * time.Second
	firstRedial    = 100 * time.Millisecond
	lastRedial     = 2 * time.Second
)

// ErrNoAddress: a client has nobody to dial.
var ErrNoAddress = errors.New("no address to dial")

// Dial returns a connection to whichever of the addresses (host:port) serves: it keeps a connection to each, redials at
// most 2 s apart for ever, and spreads calls over those whose health for the service is SERVING. With a service that
// the leader alone serves, that is the leader. An empty service takes every address that answers. A call fails at once
// with UNAVAILABLE while nobody serves, unless it waits for ready. The caller closes the connection.
func Dial(addresses []string, service string, s Security) (*grpc.ClientConn, error) {
	if len(addresses) == 0 {
		return nil, ErrNoAddress
	}
	state := resolver.State{}
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", a, err)
		}
		address := resolver.Address{Addr: a, ServerName: host}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	return dial(state, service, grpc.WithTransportCredentials(s.forClient()), grpc.WithNoProxy())
}

func dial(state resolver.State, service string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	addresses := manual.NewBuilderWithScheme("peers")
	addresses.InitialState(state)
	conn, err := grpc.NewClient("peers:///"+service, append(options,
		grpc.WithResolvers(addresses),
		grpc.WithDefaultServiceConfig(serviceConfig(service)),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", service, err)
	}
	return conn, nil
}

func serviceConfig(service string) string {
	config := map[string]any{"loadBalancingConfig": []any{map[string]any{"round_robin": map[string]any{}}}}
	if service != "" {
		config["healthCheckConfig"] = map[string]any{"serviceName": service}
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return string(text)
}

// Pipe connects clients and servers of one process without the network. It is a listener for servers.
type Pipe struct{ *bufconn.Listener }

// pipeBuffer is the bytes in flight per connection and direction.
const pipeBuffer = 1 << 20

// NewPipe returns a pipe that takes connections at once.
func NewPipe() Pipe { return Pipe{bufconn.Listen(pipeBuffer)} }

// Dial is the package's Dial for the server behind the pipe. The server must be one without certificates.
func (p Pipe) Dial(service string) (*grpc.ClientConn, error) {
	end := resolver.Endpoint{Addresses: []resolver.Address{{Addr: "pipe"}}}
	return dial(resolver.State{Endpoints: []resolver.Endpoint{end}}, service,
		grpc.WithTransportCredentials(Security{}.forClient()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.DialContext(ctx) }))
}
