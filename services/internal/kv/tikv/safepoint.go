package tikv

import (
	"crypto/tls"
	"sync"

	client "github.com/tikv/client-go/v2/tikv"
)

// safePoint is where the clients of the cluster look up which snapshots are gone. Closing it twice is no error: the
// client closes it once more.
type safePoint struct {
	client.SafePointKV
	once sync.Once
}

func newSafePoint(pd []string, tls *tls.Config) (*safePoint, error) {
	etcd, err := client.NewEtcdSafePointKV(pd, tls)
	if err != nil {
		return nil, err
	}
	return &safePoint{SafePointKV: etcd}, nil
}

func (p *safePoint) Close() (err error) {
	p.once.Do(func() { err = p.SafePointKV.Close() })
	return err
}
