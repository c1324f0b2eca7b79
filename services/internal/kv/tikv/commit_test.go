package tikv

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/errorpb"
	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/stretchr/testify/require"
	"github.com/tikv/client-go/v2/tikvrpc"

	"ankusa.dev/services/internal/kv"
)

var (
	commitAt = func(ts uint64) *tikvrpc.Request {
		return tikvrpc.NewRequest(tikvrpc.CmdCommit, &kvrpcpb.CommitRequest{Keys: [][]byte{[]byte("k")}, CommitVersion: ts})
	}
	onePhase = func() *tikvrpc.Request {
		return tikvrpc.NewRequest(tikvrpc.CmdPrewrite, &kvrpcpb.PrewriteRequest{TryOnePc: true,
			Mutations: []*kvrpcpb.Mutation{{Key: []byte("k")}}})
	}
	firstPhase = func() *tikvrpc.Request {
		return tikvrpc.NewRequest(tikvrpc.CmdPrewrite, &kvrpcpb.PrewriteRequest{
			Mutations: []*kvrpcpb.Mutation{{Key: []byte("k")}}})
	}

	errLost   = errors.New("connection lost")
	errOpaque = errors.New("what the client says")
	moved     = &errorpb.Error{EpochNotMatch: &errorpb.EpochNotMatch{}}
)

// exchange is a request of the client, and what the store answers.
type exchange struct {
	req    *tikvrpc.Request
	answer any // nil for none
}

// What an error of the client means follows from what was sent and answered before it.
func TestVerdict(t *testing.T) {
	const limit = 100
	for name, c := range map[string]struct {
		exchanges []exchange
		err, want error
	}{
		"nothing was decided": {[]exchange{{firstPhase(), nil}}, errOpaque, errOpaque},
		"lost commit":         {[]exchange{{commitAt(1), nil}}, errOpaque, kv.ErrUndetermined},
		"lost one phase":      {[]exchange{{onePhase(), nil}}, errOpaque, kv.ErrUndetermined},
		"abandoned after the answer": {[]exchange{{commitAt(1), &kvrpcpb.CommitResponse{}}},
			context.Canceled, kv.ErrUndetermined},
		"one phase fell back": {[]exchange{{onePhase(), &kvrpcpb.PrewriteResponse{}}}, errOpaque, errOpaque},
		"one phase refused": {[]exchange{{onePhase(), &kvrpcpb.PrewriteResponse{Errors: []*kvrpcpb.KeyError{{Abort: "x"}}}}},
			kv.ErrConflict, kv.ErrConflict},
		"region moved":               {[]exchange{{commitAt(1), &kvrpcpb.CommitResponse{RegionError: moved}}}, errOpaque, errOpaque},
		"lost, then region moved":    {[]exchange{{commitAt(1), nil}, {commitAt(1), &kvrpcpb.CommitResponse{RegionError: moved}}}, errOpaque, kv.ErrUndetermined},
		"lost, then refused":         {[]exchange{{commitAt(1), nil}, {commitAt(1), &kvrpcpb.CommitResponse{Error: &kvrpcpb.KeyError{Retryable: "gone"}}}}, errOpaque, kv.ErrConflict},
		"past the bound":             {[]exchange{{commitAt(limit + 1), &kvrpcpb.CommitResponse{}}}, errOpaque, kv.ErrBound},
		"lost, then past the bound":  {[]exchange{{commitAt(1), nil}, {commitAt(limit + 1), nil}}, errOpaque, kv.ErrBound},
		"at the bound":               {[]exchange{{commitAt(limit), nil}}, errOpaque, kv.ErrUndetermined},
		"too large for a Raft entry": {[]exchange{{firstPhase(), &kvrpcpb.PrewriteResponse{RegionError: &errorpb.Error{RaftEntryTooLarge: &errorpb.RaftEntryTooLarge{}}}}}, errOpaque, kv.ErrTooLarge},
	} {
		w := &witness{limit: limit, deadline: time.Now().Add(time.Hour), open: map[string]struct{}{}}
		for _, e := range c.exchanges {
			_, _ = w.intercept(func(string, *tikvrpc.Request) (*tikvrpc.Response, error) {
				if e.answer == nil {
					return nil, errLost
				}
				return &tikvrpc.Response{Resp: e.answer}, nil
			})("store", e.req)
		}
		require.ErrorIs(t, w.verdict(c.err), c.want, name)
	}
}

// A request that the bound or the verdict forbids never leaves, and is answered so that the client rolls back.
func TestForbiddenRequestsAreNotSent(t *testing.T) {
	for name, c := range map[string]struct {
		given bool
		req   *tikvrpc.Request
	}{
		"late commit":                 {false, commitAt(101)},
		"commit after the verdict":    {true, commitAt(1)},
		"one phase after the verdict": {true, onePhase()},
	} {
		w := &witness{limit: 100, given: c.given, open: map[string]struct{}{}}
		resp, err := w.intercept(func(string, *tikvrpc.Request) (*tikvrpc.Response, error) {
			require.Fail(t, "it was sent", name)
			return nil, errLost
		})("store", c.req)
		require.NoError(t, err)
		regionErr, err := resp.GetRegionError()
		require.NoError(t, err)
		require.Nil(t, regionErr)
		require.True(t, refused(resp), name)
	}
}
