package tikv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pingcap/log"
	"github.com/tikv/client-go/v2/config"
	clientkv "github.com/tikv/client-go/v2/kv"
	client "github.com/tikv/client-go/v2/tikv"
	pd "github.com/tikv/pd/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"ankusa.dev/services/internal/kv"
)

const (
	pdTimeout = 3 * time.Second
	// keepAlive is how long a connection is silent before it is asked whether it still stands.
	keepAlive = 10 * time.Second
)

// Open connects to the cluster, and fails with kv.ErrUnavailable if that does not succeed before ctx ends, which has
// no further bearing on the store. The store implements kv.Collector if the config lets it collect.
func Open(ctx context.Context, c Config, logger *zap.Logger) (kv.Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	logger = quiet(logger)
	setGlobals(logger)
	s := &Store{space: space(c.KeyPrefix), patience: c.Patience}
	s.life, s.end = context.WithCancel(context.Background())
	unlink := context.AfterFunc(ctx, s.end)
	err := s.connect(c, logger)
	if err == nil && !unlink() {
		err = context.Cause(ctx)
		_ = s.Close()
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("connect to PD %v: %w: %v", c.PD, kv.ErrUnavailable, err)
	}
	if !c.GC.Enabled {
		return s, nil
	}
	return &collecting{Store: s, settle: c.GC.Settle}, nil
}

var globals sync.Once

// setGlobals sets what the client has only once per process. The batch size must let a large one-phase commit stay in
// one request, else the client falls back to two phases without a word.
func setGlobals(logger *zap.Logger) {
	globals.Do(func() {
		clientkv.TxnCommitBatchSize.Store(commitBatch)
		log.ReplaceGlobals(logger, &log.ZapProperties{Core: logger.Core(), Level: zap.NewAtomicLevelAt(zap.ErrorLevel)})
	})
}

// quiet is the client's logger. It would repeat each refused connection; what it says of a fault reaches the caller as
// an error too.
func quiet(logger *zap.Logger) *zap.Logger {
	return logger.Named("tikv-client").WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		raised, err := zapcore.NewIncreaseLevelCore(c, zapcore.ErrorLevel)
		if err != nil { // the core is stricter already
			raised = c
		}
		return zapcore.NewSamplerWithOptions(raised, time.Minute, 1, 0)
	}))
}

func (s *Store) connect(c Config, logger *zap.Logger) error {
	security := config.NewSecurity(c.TLS.CA, c.TLS.Cert, c.TLS.Key, nil)
	secure, err := security.ToTLSConfig()
	if err != nil {
		return err
	}
	if err := reach(s.life, c.PD, secure); err != nil {
		return err
	}
	pdc, err := pd.NewClientWithContext(s.life, c.PD,
		pd.SecurityOption{CAPath: c.TLS.CA, CertPath: c.TLS.Cert, KeyPath: c.TLS.Key},
		pd.WithCustomTimeoutOption(pdTimeout), pd.WithGRPCDialOptions(
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: pdTimeout}),
			// gRPC's own pauses grow to two minutes, which is how long an outage would go on after its end.
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: pdTimeout, Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}})))
	if err != nil {
		return err
	}
	safe, err := newSafePoint(s.life, c.PD, secure, logger)
	if err != nil {
		pdc.Close()
		return err
	}
	if err := s.start(pdc, safe, security); err != nil {
		pdc.Close()
		_ = safe.Close()
		return err
	}
	return nil
}

func (s *Store) start(pdc pd.Client, safe *safePoint, security config.Security) (err error) {
	s.safe = safe
	codec := client.NewCodecPDClient(client.ModeTxn, lookup{Client: pdc, life: s.life})
	rpc := client.NewRPCClient(client.WithSecurity(security), client.WithCodec(codec.GetCodec()))
	name := fmt.Sprintf("tikv-%d", pdc.GetClusterID(s.life))
	if s.client, err = client.NewKVStore(name, codec, safe, rpc); err != nil {
		_ = rpc.Close()
	}
	return err
}
