package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/refusal"
	"ankusa.dev/services/internal/rpc"
	"ankusa.dev/services/internal/rpc/inprocess"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/telemetry"
)

// Process is one process while it is built. Its parts are added in the order of run.Parts: what others rest on comes
// first.
type Process struct {
	Role config.Role
	// Roles that run, by name, where they are others than the role's own.
	Roles   []string
	Config  config.Config
	Log     *zap.Logger
	Metrics *telemetry.Metrics
	// Security between the processes.
	Security rpc.Security
	// Health is shared by all gRPC servers of the process.
	Health *health.Server

	reloading reloading
	parts     []run.Part
	// opened is what is closed when the process does not come to run.
	opened []io.Closer
}

func newProcess(role config.Role, path string, c config.Config, log *zap.Logger) *Process {
	return &Process{
		reloading: reloading{path: path, role: role, log: log, at: c},
		Role:      role, Config: c, Log: log, Metrics: telemetry.NewMetrics(c.Node.Instance), Health: health.NewServer(),
	}
}

// buildTimeout bounds the opening of the store and what is written to it before the parts start.
const buildTimeout = 30 * time.Second

func (p *Process) run(ctx context.Context, build Build, hangups <-chan os.Signal) error {
	switch err := p.build(ctx, build); {
	case err == nil:
	case ctx.Err() != nil: // what failed had been told to give up
		p.Log.Info("stopped while starting", zap.Error(err))
		return p.abandon()
	default:
		return errors.Join(err, p.abandon())
	}
	p.Add(p.reloading.part(hangups))
	p.Log.Info("starting", zap.Strings("roles", p.About().Roles), zap.String("version", Version),
		zap.String("instance", p.Config.Node.Instance), zap.Int("pid", os.Getpid()))
	return run.Parts(ctx, p.Log, p.Config.Node.ShutdownTimeout, p.parts...)
}

func (p *Process) build(ctx context.Context, build Build) error {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	var err error
	if p.Security, err = rpc.LoadSecurity(rpc.Files(p.Config.RPC.TLS), p.Log.Named("rpc")); err != nil {
		return err
	}
	return build(ctx, p)
}

// Add adds parts.
func (p *Process) Add(parts ...run.Part) { p.parts = append(p.parts, parts...) }

// Owns has something closed when the process stops, after the parts that are added later.
func (p *Process) Owns(name string, c io.Closer) {
	p.opened = append(p.opened, c)
	p.Add(run.Closer(name, c))
}

// abandon closes what was opened, last first.
func (p *Process) abandon() error {
	var errs []error
	for _, c := range slices.Backward(p.opened) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Listen binds an address and says so.
func (p *Process) Listen(what, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", what, err)
	}
	p.opened = append(p.opened, l)
	p.Log.Info("listening", zap.String("for", what), zap.Stringer("address", l.Addr()))
	return l, nil
}

// Address joins an IP address, or none, and a port.
func Address(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }

// Connect dials the schedulers, by the health of a service.
func (p *Process) Connect(service string) (*grpc.ClientConn, error) {
	return p.Keep(rpc.Dial(p.Config.Peers.Scheduler, service, p.Security))
}

// Keep owns a connection that was dialled, or hands its error on.
func (p *Process) Keep(conn *grpc.ClientConn, err error) (*grpc.ClientConn, error) {
	if err != nil {
		return nil, err
	}
	p.Owns("connection", conn)
	return conn, nil
}

// ServerDrain is how long calls may run on once a server stops: streams have been ended by their roles before.
const ServerDrain = 2 * time.Second

// ServeRPC makes a part of a server for what is registered, on the configured address if there is one.
func (p *Process) ServeRPC(register ...func(grpc.ServiceRegistrar)) error {
	at := p.Config.ListenRPC(p.Role)
	if at == "" {
		return nil
	}
	l, err := p.Listen("gRPC", at)
	if err != nil {
		return err
	}
	if p.Security.Plaintext() && !loopback(l.Addr()) {
		p.Log.Warn("gRPC is served in plaintext beyond this machine", zap.Stringer("address", l.Addr()))
	}
	s := p.NewServer(p.Security, register...)
	p.Add(rpc.Serve("grpc", s, rpc.Limit(l, p.Config.RPC.MaxConnections, p.Metrics), ServerDrain))
	return nil
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// envelope is what a hook's message may add to its body.
const envelope = 1 << 20

// NewServer makes a gRPC server of what is registered, with the process's health.
func (p *Process) NewServer(s rpc.Security, register ...func(grpc.ServiceRegistrar)) *grpc.Server {
	server := rpc.NewServer(rpc.ServerOptions{
		Log: p.Log.Named("grpc"), Security: s, Health: p.Health,
		MaxReceive: max(rpc.MaxMessage, p.Config.HTTP.MaxBodyBytes+envelope), MaxStreams: uint32(p.Config.RPC.MaxStreams),
	})
	for _, r := range register {
		r(server)
	}
	return server
}

// ServeInside makes a part of a server for the callers in this process, with the process's health.
func (p *Process) ServeInside(register ...func(grpc.ServiceRegistrar)) *inprocess.Server {
	server := rpc.NewInside(p.Log.Named("grpc"), p.Health)
	for _, r := range register {
		r(server)
	}
	p.Add(run.Part{Name: "calls inside", Run: func(ctx context.Context) error { return server.Run(ctx, ServerDrain) }})
	return server
}

// Bounds of the HTTP listeners that operators use.
const (
	operatorHeaderTimeout = 10 * time.Second
	operatorReadTimeout   = 30 * time.Second
	operatorIdleTimeout   = time.Minute
	operatorDrain         = time.Second
)

// ServeHTTP makes a part of a handler for operators.
func (p *Process) ServeHTTP(what, at string, h http.Handler) error {
	l, err := p.Listen(what, at)
	if err != nil {
		return err
	}
	errorLog, err := zap.NewStdLogAt(p.Log.Named("http"), zap.DebugLevel)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: h, ErrorLog: errorLog, MaxHeaderBytes: refusal.MaxHeaderBytes,
		ReadHeaderTimeout: operatorHeaderTimeout, ReadTimeout: operatorReadTimeout, IdleTimeout: operatorIdleTimeout,
	}
	p.Add(run.HTTP(what, server, refusal.AsJSON(l), operatorDrain))
	return nil
}

// About is what the process says of itself.
func (p *Process) About() telemetry.Process {
	roles := p.Roles
	switch {
	case roles != nil:
	case p.Role == config.RoleAll:
		roles = Roles(p.Config)
	default:
		roles = []string{string(p.Role)}
	}
	return telemetry.Process{Instance: p.Config.Node.Instance, Version: Version, Roles: roles}
}

// Roles of the one-process binary under a configuration.
func Roles(c config.Config) []string {
	roles := []config.Role{config.RoleIngest, config.RoleScheduler, config.RoleSinkRunner}
	if c.Admin.Enabled {
		roles = append(roles, config.RoleGateway)
	}
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	slices.Sort(names)
	return names
}
