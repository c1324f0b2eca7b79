package tikvmock

import (
	"context"
	"fmt"
	"math"

	"github.com/pingcap/kvproto/pkg/pdpb"
)

// gcWorker is the service whose safe point a current PD takes for the transaction safe point.
const gcWorker = "gc_worker"

// UpdateServiceGCSafePoint implements pdpb.PDServer as a current PD does: one service moves the transaction safe point,
// as far as the others let it, and never back.
func (p *placement) UpdateServiceGCSafePoint(_ context.Context, r *pdpb.UpdateServiceGCSafePointRequest) (*pdpb.UpdateServiceGCSafePointResponse, error) {
	var low uint64
	err := p.state.update(func(k *kept) (err error) {
		if name := string(r.GetServiceId()); name == gcWorker {
			err = k.moveTxnSafe(r.GetSafePoint(), r.GetTTL())
		} else {
			k.setBarrier(name, r.GetSafePoint(), r.GetTTL())
		}
		low = k.TxnSafe
		return err
	})
	if err != nil {
		return &pdpb.UpdateServiceGCSafePointResponse{Header: p.refuse(err)}, nil
	}
	return &pdpb.UpdateServiceGCSafePointResponse{Header: p.header(), ServiceId: []byte(gcWorker),
		TTL: math.MaxInt64, MinSafePoint: low}, nil
}

func (k *kept) moveTxnSafe(to uint64, ttl int64) error {
	if ttl != math.MaxInt64 {
		return fmt.Errorf("the safe point of %s must not expire", gcWorker)
	}
	if to < k.TxnSafe {
		return fmt.Errorf("transaction safe point %d is past %d", k.TxnSafe, to)
	}
	for _, at := range k.Barriers {
		to = min(to, at)
	}
	k.TxnSafe = max(k.TxnSafe, to)
	return nil
}

func (k *kept) setBarrier(name string, at uint64, ttl int64) {
	switch {
	case ttl <= 0:
		delete(k.Barriers, name)
	case at >= k.TxnSafe:
		k.Barriers[name] = at
	}
}

// UpdateGCSafePoint implements pdpb.PDServer, and collects at once what TiKV would collect in the background.
func (p *placement) UpdateGCSafePoint(_ context.Context, r *pdpb.UpdateGCSafePointRequest) (*pdpb.UpdateGCSafePointResponse, error) {
	var at uint64
	err := p.state.update(func(k *kept) error {
		if r.GetSafePoint() > k.TxnSafe {
			return fmt.Errorf("GC safe point %d is past the transaction safe point %d", r.GetSafePoint(), k.TxnSafe)
		}
		k.GCSafe = max(k.GCSafe, r.GetSafePoint())
		at = k.GCSafe
		return nil
	})
	if err == nil {
		err = p.mock.MvccStore.GC(nil, nil, at)
	}
	if err != nil {
		return &pdpb.UpdateGCSafePointResponse{Header: p.refuse(err)}, nil
	}
	return &pdpb.UpdateGCSafePointResponse{Header: p.header(), NewSafePoint: at}, nil
}

// GetGCSafePoint implements pdpb.PDServer.
func (p *placement) GetGCSafePoint(context.Context, *pdpb.GetGCSafePointRequest) (*pdpb.GetGCSafePointResponse, error) {
	out := &pdpb.GetGCSafePointResponse{Header: p.header()}
	p.state.view(func(k *kept) { out.SafePoint = k.GCSafe })
	return out, nil
}
