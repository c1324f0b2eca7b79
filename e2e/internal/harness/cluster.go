package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc/credentials"

	"ankusa.dev/e2e/internal/netfault"
)

// Options of a deployment.
type Options struct {
	// Bin holds the programs, Dir takes files, logs and stores.
	Bin, Dir string
	// Sources by name, as the file spells them.
	Sources map[string]any
	// Settings are laid over what the harness sets.
	Settings Settings
	// Schedulers, Ingests and Runners of a deployment in several processes; at least one each.
	Schedulers, Ingests, Runners int
	// Args are added to the command line of the one-process binary.
	Args []string
	// Authority signs a certificate for each of several processes; nil for plaintext between them.
	Authority *Authority
}

// Cluster is a running deployment. Its fields are fixed once it has been started.
type Cluster struct {
	// One is the one-process binary; nil in a deployment of several processes.
	One *Process
	// Store stands for TiKV, Proxy stands before it.
	Store *Process
	Proxy *netfault.Proxy

	Schedulers, Ingests, Runners []*Process
	Gateway                      *Process

	// Targets are the base URLs that take hooks, Admin is the gateway's.
	Targets []string
	Admin   string
	// Metrics are the URLs of /metrics by process name.
	Metrics map[string]string

	options   Options
	shared    Settings // of several processes
	security  credentials.TransportCredentials
	leaders   []string // gRPC addresses of the schedulers, in their order
	processes []*Process
}

// All are the processes in the order in which they were started.
func (c *Cluster) All() []*Process { return slices.Clone(c.processes) }

// Close kills what runs and reports which processes had ended by themselves before.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range slices.Backward(c.processes) {
		errs = append(errs, p.Close())
		for _, death := range p.Died() {
			errs = append(errs, errors.New(death))
		}
	}
	if c.Proxy != nil {
		errs = append(errs, c.Proxy.Close())
	}
	return errors.Join(errs...)
}

func newCluster(o Options) (*Cluster, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	return &Cluster{options: o, Metrics: map[string]string{}}, nil
}

// StartOne starts the one-process binary on a store in the directory. The caller must Close the cluster, also after an
// error, where it is not nil.
func StartOne(ctx context.Context, o Options) (*Cluster, error) {
	c, err := newCluster(o)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	s := Egress().with(Settings{
		"http.ip": Loopback, "http.port": ports[0], "admin.port": ports[1],
		"store.type": "local", "store.dir": filepath.Join(o.Dir, "store"),
	})
	c.Targets, c.Admin = []string{url(ports[0])}, url(ports[1])
	args := append([]string{"serve"}, o.Args...)
	c.One, err = c.add("ankusa", "ankusa", c.Targets[0], s, args...)
	if err != nil {
		return c, err
	}
	return c, c.One.Start(ctx)
}

// add prepares a process with a file of its own.
func (c *Cluster) add(name, binary, base string, s Settings, args ...string) (*Process, error) {
	path := filepath.Join(c.options.Dir, name+".yml")
	s = s.with(c.options.Settings)
	if len(c.options.Sources) > 0 {
		s["sources"] = c.options.Sources
	}
	if err := s.write(path); err != nil {
		return nil, err
	}
	p := &Process{
		Name: name, Ready: base + "/ready", binary: filepath.Join(c.options.Bin, binary), args: args,
		env: []string{"ANKUSA_CONFIG=" + path}, log: filepath.Join(c.options.Dir, name+".log"),
		file: path, settings: s,
	}
	c.Metrics[name] = base + "/metrics"
	c.processes = append(c.processes, p)
	return p, nil
}

func freePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		port, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

func url(port int) string { return fmt.Sprintf("http://%s", Address(port)) }
