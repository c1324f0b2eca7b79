package tikvmock

import (
	"context"
	"fmt"
	"sync"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikvrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store is a TiKV. What it does not know it answers with Unimplemented.
type store struct {
	tikvpb.UnimplementedTikvServer
	mock    *testutils.MockClient
	regions *regions
	state   *state
	address string
	hook    Hook

	applying sync.RWMutex // held, shared, by every request that takes effect
	closed   bool
}

// close lets requests that take effect end, lets no more begin, and closes the data.
func (s *store) close() error {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.closed = true
	return s.mock.Close()
}

// serve applies one request, past the hook. A nil answer without an error is one that was lost.
func (s *store) serve(ctx context.Context, req *tikvrpc.Request) (answer any, err error) {
	if s.hook == nil {
		return s.apply(ctx, req)
	}
	err = status.Errorf(codes.Aborted, "%v was not applied", req.Type)
	if !s.hook(ctx, describe(req), func() { answer, err = s.apply(ctx, req) }) {
		return nil, nil
	}
	return answer, err
}

// apply turns the mock's panics, which tell of a request that no TiKV would take, into errors.
func (s *store) apply(ctx context.Context, req *tikvrpc.Request) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			answer, err = nil, status.Errorf(codes.Internal, "%v: %v", req.Type, p)
		}
	}()
	s.applying.RLock()
	defer s.applying.RUnlock()
	if s.closed {
		return nil, status.Error(codes.Unavailable, "closed")
	}
	switch req.Type {
	case tikvrpc.CmdEmpty:
		return &tikvpb.BatchCommandsEmptyResponse{}, nil
	case tikvrpc.CmdResolveLock:
		return s.resolve(req.ResolveLock())
	case tikvrpc.CmdPrewrite:
		return s.prewrite(ctx, req)
	}
	return s.send(ctx, req)
}

func (s *store) send(ctx context.Context, req *tikvrpc.Request) (any, error) {
	resp, err := s.mock.SendRequest(ctx, s.address, req, 0)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", req.Type, err)
	}
	return resp.Resp, nil
}

// resolve does what the mock leaves out: some keys alone, and several transactions at once.
func (s *store) resolve(r *kvrpcpb.ResolveLockRequest) (*kvrpcpb.ResolveLockResponse, error) {
	if fault := s.regions.fault(r.GetContext()); fault != nil {
		return &kvrpcpb.ResolveLockResponse{RegionError: fault}, nil
	}
	if len(r.GetKeys()) > 0 {
		return answerTo(s.resolveKeys(r)), nil
	}
	from, to, err := s.regions.bounds(r.GetContext().GetRegionId())
	if err != nil {
		return nil, err
	}
	fates := map[uint64]uint64{r.GetStartVersion(): r.GetCommitVersion()}
	if len(r.GetTxnInfos()) > 0 {
		clear(fates)
	}
	for _, t := range r.GetTxnInfos() {
		fates[t.GetTxn()] = t.GetStatus()
	}
	return answerTo(s.mock.MvccStore.BatchResolveLock(from, to, fates)), nil
}

func (s *store) resolveKeys(r *kvrpcpb.ResolveLockRequest) error {
	for _, k := range r.GetKeys() {
		next := append(append([]byte(nil), k...), 0)
		if err := s.mock.MvccStore.ResolveLock(k, next, r.GetStartVersion(), r.GetCommitVersion()); err != nil {
			return err
		}
	}
	return nil
}

func answerTo(err error) *kvrpcpb.ResolveLockResponse {
	if err != nil {
		return &kvrpcpb.ResolveLockResponse{Error: &kvrpcpb.KeyError{Abort: err.Error()}}
	}
	return &kvrpcpb.ResolveLockResponse{}
}

// SplitRegion implements tikvpb.TikvServer.
func (s *store) SplitRegion(_ context.Context, r *kvrpcpb.SplitRegionRequest) (*kvrpcpb.SplitRegionResponse, error) {
	if fault := s.regions.fault(r.GetContext()); fault != nil {
		return &kvrpcpb.SplitRegionResponse{RegionError: fault}, nil
	}
	made, err := s.regions.cut(r.GetSplitKeys())
	return &kvrpcpb.SplitRegionResponse{Regions: made}, err
}

// GetStoreSafeTS implements tikvpb.TikvServer. No stale read is ever safe here.
func (s *store) GetStoreSafeTS(context.Context, *kvrpcpb.StoreSafeTSRequest) (*kvrpcpb.StoreSafeTSResponse, error) {
	return &kvrpcpb.StoreSafeTSResponse{}, nil
}
