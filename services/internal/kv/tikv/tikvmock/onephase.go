package tikvmock

import (
	"context"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/tikv/client-go/v2/tikvrpc"
)

// prewrite commits at once where the client asks for it, which the mock cannot do by itself.
func (s *store) prewrite(ctx context.Context, req *tikvrpc.Request) (any, error) {
	r := req.Prewrite()
	answer, err := s.send(ctx, req)
	p, ok := answer.(*kvrpcpb.PrewriteResponse)
	if err != nil || !ok || !r.GetTryOnePc() || p.GetRegionError() != nil {
		return answer, err
	}
	if len(p.GetErrors()) > 0 {
		return s.repeated(ctx, req, p)
	}
	// The locks are in place: who reads at this timestamp or later meets them, or the commit.
	ts, err := s.state.now()
	if err != nil || r.GetMaxCommitTs() != 0 && ts > r.GetMaxCommitTs() {
		return p, err // the client goes on in two phases
	}
	keys := make([][]byte, len(r.GetMutations()))
	for i, m := range r.GetMutations() {
		keys[i] = m.GetKey()
	}
	answer, err = s.send(ctx, tikvrpc.NewRequest(tikvrpc.CmdCommit,
		&kvrpcpb.CommitRequest{StartVersion: r.GetStartVersion(), Keys: keys, CommitVersion: ts}, req.Context))
	c, ok := answer.(*kvrpcpb.CommitResponse)
	if err != nil || !ok {
		return nil, err
	}
	if c.GetError() != nil || c.GetRegionError() != nil {
		// Somebody met the locks in between: a reader forbids this timestamp, or the transaction is rolled back. The
		// second phase is told.
		return p, nil
	}
	return &kvrpcpb.PrewriteResponse{OnePcCommitTs: ts}, nil
}

// repeated answers a request whose first answer was lost after it had committed: the mock takes it for a conflict with
// itself.
func (s *store) repeated(ctx context.Context, req *tikvrpc.Request, refused *kvrpcpb.PrewriteResponse) (any, error) {
	r := req.Prewrite()
	answer, err := s.send(ctx, tikvrpc.NewRequest(tikvrpc.CmdMvccGetByKey,
		&kvrpcpb.MvccGetByKeyRequest{Key: r.GetMutations()[0].GetKey()}, req.Context))
	found, ok := answer.(*kvrpcpb.MvccGetByKeyResponse)
	if err != nil || !ok {
		return nil, err
	}
	for _, w := range found.GetInfo().GetWrites() {
		if w.GetStartTs() == r.GetStartVersion() && w.GetType() != kvrpcpb.Op_Rollback {
			return &kvrpcpb.PrewriteResponse{OnePcCommitTs: w.GetCommitTs()}, nil
		}
	}
	return refused, nil
}
