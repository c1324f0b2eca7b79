package tikvmock

import (
	"bytes"
	"sync"

	"github.com/pingcap/kvproto/pkg/errorpb"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/util/codec"
)

// regions are the parts of the key space, all with their one replica on the one store.
type regions struct {
	cluster *testutils.MockCluster
	state   *state
	cutting sync.Mutex
}

func newRegions(cluster *testutils.MockCluster, address string, s *state) *regions {
	r := &regions{cluster: cluster, state: s}
	cluster.AddStore(storeID, address)
	const region, peer = storeID + 1, storeID + 2
	cluster.AllocIDs(peer)
	cluster.Bootstrap(region, []uint64{storeID}, []uint64{peer}, peer)
	for _, c := range s.kept.Splits {
		cluster.AllocIDs(2)
		cluster.SplitRaw(c.Region, c.New, c.Key, []uint64{c.Peer}, c.Peer)
	}
	return r
}

// fault says why a request does not fit the regions as they are; nil if it does.
func (r *regions) fault(c *kvrpcpb.Context) *errorpb.Error {
	region, _ := r.cluster.GetRegion(c.GetRegionId())
	if region == nil {
		return &errorpb.Error{Message: "region not found",
			RegionNotFound: &errorpb.RegionNotFound{RegionId: c.GetRegionId()}}
	}
	if have, told := region.GetRegionEpoch(), c.GetRegionEpoch(); have.GetVersion() != told.GetVersion() ||
		have.GetConfVer() != told.GetConfVer() {
		return &errorpb.Error{Message: "epoch not match",
			EpochNotMatch: &errorpb.EpochNotMatch{CurrentRegions: []*metapb.Region{region}}}
	}
	return nil
}

// bounds are a region's keys as the clients know them.
func (r *regions) bounds(id uint64) (from, to []byte, err error) {
	region, _ := r.cluster.GetRegion(id)
	if from, err = decode(region.GetStartKey()); err != nil {
		return nil, nil, err
	}
	to, err = decode(region.GetEndKey())
	return from, to, err
}

func decode(key []byte) ([]byte, error) {
	if len(key) == 0 {
		return nil, nil
	}
	_, raw, err := codec.DecodeBytes(key, nil)
	return raw, err
}

// cut makes each key the first of a region, and returns the regions that came out, lowest first.
func (r *regions) cut(keys [][]byte) ([]*metapb.Region, error) {
	r.cutting.Lock()
	defer r.cutting.Unlock()
	var out []*metapb.Region
	for _, key := range keys {
		at := codec.EncodeBytes(nil, key)
		old, _, _ := r.cluster.GetRegionByKey(at)
		if bytes.Equal(old.GetStartKey(), at) {
			continue
		}
		ids := r.cluster.AllocIDs(2)
		c := split{Region: old.GetId(), New: ids[0], Peer: ids[1], Key: at}
		if err := r.state.update(func(k *kept) error { k.Splits = append(k.Splits, c); return nil }); err != nil {
			return nil, err
		}
		right := r.cluster.SplitRaw(c.Region, c.New, c.Key, []uint64{c.Peer}, c.Peer)
		left, _ := r.cluster.GetRegion(c.Region)
		if n := len(out); n > 0 && out[n-1].GetId() == left.GetId() {
			out = out[:n-1]
		}
		out = append(out, left, right)
	}
	return out, nil
}
