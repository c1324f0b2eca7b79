package tikvmock

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/tikvrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// BatchCommands implements tikvpb.TikvServer: the stream on which clients send nearly everything. A request that fails
// ends the stream with its error, since an answer has no room for one.
func (s *store) BatchCommands(stream tikvpb.Tikv_BatchCommandsServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	b := batch{store: s, stream: stream}
	received := make(chan error, 1)
	var running sync.WaitGroup
	go func() { received <- b.receive(ctx, cancel, &running) }()
	var err error
	select {
	case err = <-received:
		running.Wait()
	case <-ctx.Done(): // receive ends with the stream, which ends with this call
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

type batch struct {
	store   *store
	stream  tikvpb.Tikv_BatchCommandsServer
	sending sync.Mutex
}

func (b *batch) receive(ctx context.Context, fail context.CancelCauseFunc, running *sync.WaitGroup) error {
	for {
		in, err := b.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i, r := range in.GetRequests() {
			id := in.GetRequestIds()[i]
			running.Go(func() {
				if err := b.answer(ctx, id, r); err != nil {
					fail(err)
				}
			})
		}
	}
}

func (b *batch) answer(ctx context.Context, id uint64, r *tikvpb.BatchCommandsRequest_Request) error {
	req := unpack(r)
	if req == nil {
		return status.Errorf(codes.Unimplemented, "batch command %T is not supported", r.GetCmd())
	}
	resp, err := b.store.serve(ctx, req)
	if err != nil || resp == nil {
		return err
	}
	out := pack(resp)
	if out == nil {
		return status.Errorf(codes.Internal, "no batch answer for %T", resp)
	}
	b.sending.Lock()
	defer b.sending.Unlock()
	return b.stream.Send(&tikvpb.BatchCommandsResponse{
		Responses: []*tikvpb.BatchCommandsResponse_Response{out}, RequestIds: []uint64{id}})
}

type command interface{ GetContext() *kvrpcpb.Context }

func request(t tikvrpc.CmdType, c command) *tikvrpc.Request {
	if ctx := c.GetContext(); ctx != nil {
		return tikvrpc.NewRequest(t, c, *ctx)
	}
	return tikvrpc.NewRequest(t, c)
}

func unpack(r *tikvpb.BatchCommandsRequest_Request) *tikvrpc.Request {
	switch c := r.GetCmd().(type) {
	case *tikvpb.BatchCommandsRequest_Request_Get:
		return request(tikvrpc.CmdGet, c.Get)
	case *tikvpb.BatchCommandsRequest_Request_BatchGet:
		return request(tikvrpc.CmdBatchGet, c.BatchGet)
	case *tikvpb.BatchCommandsRequest_Request_Scan:
		return request(tikvrpc.CmdScan, c.Scan)
	case *tikvpb.BatchCommandsRequest_Request_Prewrite:
		return request(tikvrpc.CmdPrewrite, c.Prewrite)
	case *tikvpb.BatchCommandsRequest_Request_Commit:
		return request(tikvrpc.CmdCommit, c.Commit)
	case *tikvpb.BatchCommandsRequest_Request_BatchRollback:
		return request(tikvrpc.CmdBatchRollback, c.BatchRollback)
	case *tikvpb.BatchCommandsRequest_Request_CheckTxnStatus:
		return request(tikvrpc.CmdCheckTxnStatus, c.CheckTxnStatus)
	case *tikvpb.BatchCommandsRequest_Request_TxnHeartBeat:
		return request(tikvrpc.CmdTxnHeartBeat, c.TxnHeartBeat)
	case *tikvpb.BatchCommandsRequest_Request_ResolveLock:
		return request(tikvrpc.CmdResolveLock, c.ResolveLock)
	case *tikvpb.BatchCommandsRequest_Request_ScanLock:
		return request(tikvrpc.CmdScanLock, c.ScanLock)
	case *tikvpb.BatchCommandsRequest_Request_DeleteRange:
		return request(tikvrpc.CmdDeleteRange, c.DeleteRange)
	case *tikvpb.BatchCommandsRequest_Request_Empty:
		return tikvrpc.NewRequest(tikvrpc.CmdEmpty, c.Empty)
	}
	return nil
}

func pack(resp any) *tikvpb.BatchCommandsResponse_Response {
	var out tikvpb.BatchCommandsResponse_Response
	switch a := resp.(type) {
	case *kvrpcpb.GetResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Get{Get: a}
	case *kvrpcpb.BatchGetResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_BatchGet{BatchGet: a}
	case *kvrpcpb.ScanResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Scan{Scan: a}
	case *kvrpcpb.PrewriteResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Prewrite{Prewrite: a}
	case *kvrpcpb.CommitResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Commit{Commit: a}
	case *kvrpcpb.BatchRollbackResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_BatchRollback{BatchRollback: a}
	case *kvrpcpb.CheckTxnStatusResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_CheckTxnStatus{CheckTxnStatus: a}
	case *kvrpcpb.TxnHeartBeatResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_TxnHeartBeat{TxnHeartBeat: a}
	case *kvrpcpb.ResolveLockResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_ResolveLock{ResolveLock: a}
	case *kvrpcpb.ScanLockResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_ScanLock{ScanLock: a}
	case *kvrpcpb.DeleteRangeResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_DeleteRange{DeleteRange: a}
	case *tikvpb.BatchCommandsEmptyResponse:
		out.Cmd = &tikvpb.BatchCommandsResponse_Response_Empty{Empty: a}
	default:
		return nil
	}
	return &out
}
