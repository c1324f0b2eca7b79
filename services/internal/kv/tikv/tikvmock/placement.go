package tikvmock

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/tikv/client-go/v2/testutils"
)

// placement is a PD. What it does not know it answers with Unimplemented.
type placement struct {
	pdpb.UnimplementedPDServer
	regions *regions
	state   *state
	mock    *testutils.MockClient
	address string
}

func (p *placement) header() (h *pdpb.ResponseHeader) {
	p.state.view(func(k *kept) { h = &pdpb.ResponseHeader{ClusterId: k.ClusterID} })
	return h
}

func (p *placement) refuse(err error) *pdpb.ResponseHeader {
	h := p.header()
	h.Error = &pdpb.Error{Type: pdpb.ErrorType_UNKNOWN, Message: err.Error()}
	return h
}

// GetMembers implements pdpb.PDServer.
func (p *placement) GetMembers(context.Context, *pdpb.GetMembersRequest) (*pdpb.GetMembersResponse, error) {
	m := &pdpb.Member{Name: "mock", MemberId: 1, ClientUrls: []string{"http://" + p.address}}
	return &pdpb.GetMembersResponse{Header: p.header(), Members: []*pdpb.Member{m}, Leader: m, EtcdLeader: m}, nil
}

// GetClusterInfo implements pdpb.PDServer.
func (p *placement) GetClusterInfo(context.Context, *pdpb.GetClusterInfoRequest) (*pdpb.GetClusterInfoResponse, error) {
	return &pdpb.GetClusterInfoResponse{Header: p.header(),
		ServiceModes: []pdpb.ServiceMode{pdpb.ServiceMode_PD_SVC_MODE}}, nil
}

// Tso implements pdpb.PDServer.
func (p *placement) Tso(stream pdpb.PD_TsoServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		physical, logical, err := p.state.timestamps(int64(r.GetCount()))
		if err != nil {
			return err
		}
		err = stream.Send(&pdpb.TsoResponse{Header: p.header(), Count: r.GetCount(),
			Timestamp: &pdpb.Timestamp{Physical: physical, Logical: logical}})
		if err != nil {
			return err
		}
	}
}

// GetStore implements pdpb.PDServer.
func (p *placement) GetStore(_ context.Context, r *pdpb.GetStoreRequest) (*pdpb.GetStoreResponse, error) {
	s := p.regions.cluster.GetStore(r.GetStoreId())
	if s == nil {
		return &pdpb.GetStoreResponse{Header: p.refuse(fmt.Errorf("no store %d", r.GetStoreId()))}, nil
	}
	return &pdpb.GetStoreResponse{Header: p.header(), Store: s}, nil
}

// GetAllStores implements pdpb.PDServer.
func (p *placement) GetAllStores(context.Context, *pdpb.GetAllStoresRequest) (*pdpb.GetAllStoresResponse, error) {
	return &pdpb.GetAllStoresResponse{Header: p.header(), Stores: p.regions.cluster.GetAllStores()}, nil
}

// GetRegion implements pdpb.PDServer.
func (p *placement) GetRegion(_ context.Context, r *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	return p.region(p.regions.cluster.GetRegionByKey(r.GetRegionKey())), nil
}

// GetPrevRegion implements pdpb.PDServer.
func (p *placement) GetPrevRegion(_ context.Context, r *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	return p.region(p.regions.cluster.GetPrevRegionByKey(r.GetRegionKey())), nil
}

// GetRegionByID implements pdpb.PDServer.
func (p *placement) GetRegionByID(_ context.Context, r *pdpb.GetRegionByIDRequest) (*pdpb.GetRegionResponse, error) {
	return p.region(p.regions.cluster.GetRegionByID(r.GetRegionId())), nil
}

func (p *placement) region(r *metapb.Region, leader *metapb.Peer, _ *metapb.Buckets) *pdpb.GetRegionResponse {
	return &pdpb.GetRegionResponse{Header: p.header(), Region: r, Leader: leader}
}

// ScanRegions implements pdpb.PDServer.
func (p *placement) ScanRegions(_ context.Context, r *pdpb.ScanRegionsRequest) (*pdpb.ScanRegionsResponse, error) {
	out := &pdpb.ScanRegionsResponse{Header: p.header()}
	for _, region := range p.regions.cluster.ScanRegions(r.GetStartKey(), r.GetEndKey(), int(r.GetLimit())) {
		out.RegionMetas = append(out.RegionMetas, region.Meta)
		out.Leaders = append(out.Leaders, region.Leader)
		out.Regions = append(out.Regions, &pdpb.Region{Region: region.Meta, Leader: region.Leader})
	}
	return out, nil
}

// ScatterRegion implements pdpb.PDServer: on one store there is nothing to spread.
func (p *placement) ScatterRegion(context.Context, *pdpb.ScatterRegionRequest) (*pdpb.ScatterRegionResponse, error) {
	return &pdpb.ScatterRegionResponse{Header: p.header(), FinishedPercentage: 100}, nil
}
