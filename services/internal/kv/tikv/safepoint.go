package tikv

import (
	"context"
	"crypto/tls"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// safePointTimeout bounds one look at the safe point. The client looks every ten seconds.
const safePointTimeout = 5 * time.Second

// safePoint is where the clients of a cluster tell each other, in PD's etcd, below which timestamp nothing can be read
// any more. It answers the client's interface, whose calls have no context: they end with the store's life.
type safePoint struct {
	life context.Context
	etcd *clientv3.Client
}

func newSafePoint(life context.Context, pd []string, tls *tls.Config, logger *zap.Logger) (*safePoint, error) {
	etcd, err := clientv3.New(clientv3.Config{Context: life, Endpoints: pd, TLS: tls, Logger: logger,
		AutoSyncInterval: 30 * time.Second, DialTimeout: safePointTimeout,
		DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: pdTimeout})
	if err != nil {
		return nil, err
	}
	return &safePoint{life: life, etcd: etcd}, nil
}

func (p *safePoint) Put(key, value string) error {
	ctx, cancel := context.WithTimeout(p.life, safePointTimeout)
	defer cancel()
	_, err := p.etcd.Put(ctx, key, value)
	return err
}

// Get returns nothing for a key that does not exist.
func (p *safePoint) Get(key string) (string, error) {
	found, err := p.get(key)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return string(found[0].Value), nil
}

func (p *safePoint) GetWithPrefix(prefix string) ([]*mvccpb.KeyValue, error) {
	return p.get(prefix, clientv3.WithPrefix())
}

func (p *safePoint) get(key string, opts ...clientv3.OpOption) ([]*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(p.life, safePointTimeout)
	defer cancel()
	resp, err := p.etcd.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	return resp.Kvs, nil
}

func (p *safePoint) Close() error { return p.etcd.Close() }
