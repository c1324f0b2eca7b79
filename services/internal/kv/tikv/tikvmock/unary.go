package tikvmock

import (
	"context"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/tikv/client-go/v2/tikvrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unary serves a request of a client that does not batch. Where the answer is lost it waits for the client to give up.
func unary[Answer any](ctx context.Context, s *store, t tikvrpc.CmdType, c command) (*Answer, error) {
	resp, err := s.serve(ctx, request(t, c))
	if err != nil {
		return nil, err
	}
	if resp == nil {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	a, ok := resp.(*Answer)
	if !ok {
		return nil, status.Errorf(codes.Internal, "unexpected answer %T", resp)
	}
	return a, nil
}

func (s *store) KvGet(ctx context.Context, r *kvrpcpb.GetRequest) (*kvrpcpb.GetResponse, error) {
	return unary[kvrpcpb.GetResponse](ctx, s, tikvrpc.CmdGet, r)
}

func (s *store) KvBatchGet(ctx context.Context, r *kvrpcpb.BatchGetRequest) (*kvrpcpb.BatchGetResponse, error) {
	return unary[kvrpcpb.BatchGetResponse](ctx, s, tikvrpc.CmdBatchGet, r)
}

func (s *store) KvScan(ctx context.Context, r *kvrpcpb.ScanRequest) (*kvrpcpb.ScanResponse, error) {
	return unary[kvrpcpb.ScanResponse](ctx, s, tikvrpc.CmdScan, r)
}

func (s *store) KvPrewrite(ctx context.Context, r *kvrpcpb.PrewriteRequest) (*kvrpcpb.PrewriteResponse, error) {
	return unary[kvrpcpb.PrewriteResponse](ctx, s, tikvrpc.CmdPrewrite, r)
}

func (s *store) KvCommit(ctx context.Context, r *kvrpcpb.CommitRequest) (*kvrpcpb.CommitResponse, error) {
	return unary[kvrpcpb.CommitResponse](ctx, s, tikvrpc.CmdCommit, r)
}

func (s *store) KvBatchRollback(ctx context.Context, r *kvrpcpb.BatchRollbackRequest) (*kvrpcpb.BatchRollbackResponse, error) {
	return unary[kvrpcpb.BatchRollbackResponse](ctx, s, tikvrpc.CmdBatchRollback, r)
}

func (s *store) KvCheckTxnStatus(ctx context.Context, r *kvrpcpb.CheckTxnStatusRequest) (*kvrpcpb.CheckTxnStatusResponse, error) {
	return unary[kvrpcpb.CheckTxnStatusResponse](ctx, s, tikvrpc.CmdCheckTxnStatus, r)
}

func (s *store) KvTxnHeartBeat(ctx context.Context, r *kvrpcpb.TxnHeartBeatRequest) (*kvrpcpb.TxnHeartBeatResponse, error) {
	return unary[kvrpcpb.TxnHeartBeatResponse](ctx, s, tikvrpc.CmdTxnHeartBeat, r)
}

func (s *store) KvResolveLock(ctx context.Context, r *kvrpcpb.ResolveLockRequest) (*kvrpcpb.ResolveLockResponse, error) {
	return unary[kvrpcpb.ResolveLockResponse](ctx, s, tikvrpc.CmdResolveLock, r)
}

func (s *store) KvScanLock(ctx context.Context, r *kvrpcpb.ScanLockRequest) (*kvrpcpb.ScanLockResponse, error) {
	return unary[kvrpcpb.ScanLockResponse](ctx, s, tikvrpc.CmdScanLock, r)
}

func (s *store) KvDeleteRange(ctx context.Context, r *kvrpcpb.DeleteRangeRequest) (*kvrpcpb.DeleteRangeResponse, error) {
	return unary[kvrpcpb.DeleteRangeResponse](ctx, s, tikvrpc.CmdDeleteRange, r)
}
