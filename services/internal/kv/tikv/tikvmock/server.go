// Package tikvmock serves the client's own mock of TiKV, beside a small PD, over gRPC, so that several processes use
// it as they would use a cluster. It stands for TiKV's semantics, and, when opened on a path, for its durability under
// the death of a process; not for its speed, nor for the loss of power.
package tikvmock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

const (
	storeID    = 1
	maxMessage = 256 << 20
	// drain is how long a server that ends waits for requests under way.
	drain = time.Second
)

// Config says where a server listens and what it remembers.
type Config struct {
	// Listen is the TCP address. Default 127.0.0.1:0, any free port.
	Listen string
	// Advertise is the address that clients are sent to. It differs from the listener's where a proxy stands between.
	// Default the listener's.
	Advertise string
	// Path is a directory that keeps the data. Empty means that it ends with the server.
	Path string
	// Hook, if any, is asked around every request to TiKV.
	Hook Hook
}

// Server is one cluster: a PD and one TiKV on one port.
type Server struct {
	listener net.Listener
	grpc     *grpc.Server
	store    *store
}

// Open listens, and reads what an earlier server left at the path. The caller must Run the server.
func Open(c Config) (*Server, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	state, data, err := openState(c.Path)
	if err != nil {
		return nil, err
	}
	mock, cluster, pd, err := testutils.NewMockTiKV(data, nil)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", data, err)
	}
	pd.Close() // its clock is forgetful
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, errors.Join(err, mock.Close())
	}
	if c.Advertise == "" {
		c.Advertise = l.Addr().String()
	}
	regions := newRegions(cluster, c.Advertise, state)
	s := &Server{listener: l, grpc: newGRPC(),
		store: &store{mock: mock, regions: regions, state: state, address: c.Advertise, hook: c.Hook}}
	tikvpb.RegisterTikvServer(s.grpc, s.store)
	pdpb.RegisterPDServer(s.grpc, &placement{regions: regions, state: state, mock: mock, address: c.Advertise})
	etcd := &etcd{state: state, address: c.Advertise}
	etcdserverpb.RegisterKVServer(s.grpc, etcd)
	etcdserverpb.RegisterClusterServer(s.grpc, etcd)
	healthpb.RegisterHealthServer(s.grpc, health.NewServer())
	return s, nil
}

func newGRPC() *grpc.Server {
	return grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// The clients ping every 10 s, which a server takes for abuse unless told otherwise.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
}

// openState reads the cluster's metadata, and says where the versions are kept: nowhere without a path.
func openState(path string) (*state, string, error) {
	if path == "" {
		return newState(""), "", nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, "", err
	}
	s := newState(filepath.Join(path, "cluster.json"))
	return s, filepath.Join(path, "data"), s.load()
}

// Addr is the listener's address: PD's, TiKV's and etcd's at once.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx ends, then closes the store and frees the path.
func (s *Server) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.shutdown()
	})
	err := s.grpc.Serve(s.listener)
	if stop() {
		s.grpc.Stop()
	} else {
		<-stopped
		if errors.Is(err, grpc.ErrServerStopped) { // before it began to serve
			err = nil
		}
	}
	return errors.Join(err, s.store.close())
}

// shutdown gives requests under way a moment; the clients' streams never end by themselves.
func (s *Server) shutdown() {
	hard := time.AfterFunc(drain, s.grpc.Stop)
	defer hard.Stop()
	s.grpc.GracefulStop()
}
