package harness

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"ankusa.dev/e2e/internal/netfault"
	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
)

// StartFour starts every kind of process of its own, over the served stand-in of TiKV behind a proxy. The caller must
// Close the cluster, also after an error, where it is not nil.
func StartFour(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	if err := c.secure(); err != nil {
		return c, err
	}
	if err := c.startStore(ctx); err != nil {
		return c, err
	}
	if err := c.prepare(ctx); err != nil {
		return c, err
	}
	for _, p := range c.processes[1:] {
		if err := p.Launch(); err != nil {
			return c, err
		}
	}
	for _, p := range c.processes[1:] {
		if err := p.WaitReady(ctx); err != nil {
			return c, err
		}
	}
	_, err = c.Leader(ctx)
	return c, err
}

// secure chooses what this program shows to the processes.
func (c *Cluster) secure() (err error) {
	c.security = insecure.NewCredentials()
	if c.options.Authority != nil {
		c.security, err = c.options.Authority.credentials()
	}
	return err
}

func (c *Cluster) startStore(ctx context.Context) error {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	c.Proxy, err = netfault.Listen(Address(ports[1]), Address(ports[0]))
	if err != nil {
		return err
	}
	c.Store = &Process{
		Name: "tikvmock", binary: filepath.Join(c.options.Bin, "tikvmock"),
		args: []string{"-listen", Address(ports[0]), "-advertise", Address(ports[1]), "-path", filepath.Join(c.options.Dir, "store")},
		log:  filepath.Join(c.options.Dir, "tikvmock.log"),
	}
	c.processes = append(c.processes, c.Store)
	c.shared = Egress().with(Settings{"store.type": "tikv", "store.pd": []string{Address(ports[1])}})
	return c.Store.Launch()
}

func (c *Cluster) prepare(ctx context.Context) error {
	o := c.options
	ports, err := freePorts(ctx, 2*o.Schedulers+2*o.Ingests+o.Runners+1)
	if err != nil {
		return err
	}
	next := func() int { p := ports[0]; ports = ports[1:]; return p }
	rpc := make([]int, o.Schedulers)
	for i := range rpc {
		rpc[i] = next()
		c.leaders = append(c.leaders, Address(rpc[i]))
	}
	c.shared["peers.scheduler"] = c.leaders
	for i := range rpc {
		health := next()
		err = c.join(&c.Schedulers, "scheduler", i, health, Settings{
			"rpc.listen": Address(rpc[i]), "scheduler.health_listen": Address(health),
		}, err)
	}
	for i := range o.Ingests {
		port := next()
		c.Targets = append(c.Targets, url(port))
		err = c.join(&c.Ingests, "ingest", i, port, Settings{
			"http.ip": Loopback, "http.port": port, "rpc.listen": Address(next()),
		}, err)
	}
	for i := range o.Runners {
		health := next()
		err = c.join(&c.Runners, "sinkrunner", i, health, Settings{"runner.health_listen": Address(health)}, err)
	}
	port := next()
	c.Admin = url(port)
	var gateways []*Process
	err = c.join(&gateways, "gateway", 0, port, Settings{"admin.port": port}, err)
	if err == nil {
		c.Gateway = gateways[0]
	}
	return err
}

// join adds one more process of a kind, unless something failed before.
func (c *Cluster) join(kind *[]*Process, binary string, i, port int, s Settings, failed error) error {
	if failed != nil {
		return failed
	}
	name := fmt.Sprintf("%s-%d", binary, i)
	all := c.shared.with(s)
	if c.options.Authority != nil {
		shown, err := c.options.Authority.Issue(name)
		if err != nil {
			return err
		}
		all = all.with(shown)
	}
	p, err := c.add(name, binary, url(port), all)
	if err == nil {
		*kind = append(*kind, p)
	}
	return err
}

// AddRunner prepares one more sink-runner, with settings of its own over the deployment's but without a certificate.
func (c *Cluster) AddRunner(ctx context.Context, name string, s Settings) (*Process, error) {
	port, err := FreePort(ctx)
	if err != nil {
		return nil, err
	}
	return c.add(name, "sinkrunner", url(port), c.shared.with(Settings{"runner.health_listen": Address(port)}).with(s))
}

// Leader waits until exactly one scheduler says that it leads, and returns its place among the schedulers.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	ticker := time.NewTicker(5 * readyPoll)
	defer ticker.Stop()
	for {
		leads := -1
		for i, addr := range c.leaders {
			if c.Schedulers[i].Running() && c.serves(ctx, addr) {
				if leads >= 0 {
					leads = -1
					break
				}
				leads = i
			}
		}
		if leads >= 0 {
			return leads, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return -1, fmt.Errorf("no scheduler leads: %w", ctx.Err())
		}
	}
}

// Dial connects to a scheduler, as a process of the deployment does. The caller closes the connection.
func (c *Cluster) Dial(scheduler int, o ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(c.leaders[scheduler], append(o, grpc.WithTransportCredentials(c.security))...)
}

// Address is where a scheduler serves gRPC.
func (c *Cluster) Address(scheduler int) string { return c.leaders[scheduler] }

func (c *Cluster) serves(ctx context.Context, addr string) bool {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c.security))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{
		Service: dispatchv1.DispatchService_ServiceDesc.ServiceName,
	})
	return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
}
