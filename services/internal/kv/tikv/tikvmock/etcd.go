package tikvmock

import (
	"bytes"
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// etcd is as much of PD's etcd as the clients use to tell each other the safe point.
type etcd struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedClusterServer
	state   *state
	address string
}

func (k *kept) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: k.ClusterID, MemberId: 1, Revision: k.Revision, RaftTerm: 1}
}

// Range implements etcdserverpb.KVServer, of the options the range's end alone.
func (e *etcd) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	out := &etcdserverpb.RangeResponse{}
	e.state.view(func(k *kept) {
		out.Header = k.header()
		for key, value := range k.Etcd {
			if within([]byte(key), r.GetKey(), r.GetRangeEnd()) {
				out.Kvs = append(out.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value)})
			}
		}
	})
	slices.SortFunc(out.Kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	out.Count = int64(len(out.Kvs))
	return out, nil
}

// within follows etcd: no end means the one key, a zero byte means no upper bound.
func within(key, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(key, from)
	case bytes.Equal(end, []byte{0}):
		return bytes.Compare(key, from) >= 0
	}
	return bytes.Compare(key, from) >= 0 && bytes.Compare(key, end) < 0
}

// Put implements etcdserverpb.KVServer.
func (e *etcd) Put(_ context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	out := &etcdserverpb.PutResponse{}
	err := e.state.update(func(k *kept) error {
		k.Etcd[string(r.GetKey())] = string(r.GetValue())
		k.Revision++
		out.Header = k.header()
		return nil
	})
	return out, err
}

// MemberList implements etcdserverpb.ClusterServer.
func (e *etcd) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	out := &etcdserverpb.MemberListResponse{}
	e.state.view(func(k *kept) { out.Header = k.header() })
	out.Members = []*etcdserverpb.Member{{ID: 1, Name: "mock", ClientURLs: []string{"http://" + e.address}}}
	return out, nil
}
