package tikvmock

import (
	"context"
	"testing"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func start(t *testing.T, c Config) (*grpc.ClientConn, func()) {
	s, err := Open(c)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return conn, func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestUnknownRequestsAreAnsweredClearly(t *testing.T) {
	conn, stop := start(t, Config{})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := tikvpb.NewTikvClient(conn).RawGet(ctx, &kvrpcpb.RawGetRequest{})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = pdpb.NewPDClient(conn).AskSplit(ctx, &pdpb.AskSplitRequest{})
	require.Equal(t, codes.Unimplemented, status.Code(err))

	stream, err := tikvpb.NewTikvClient(conn).BatchCommands(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&tikvpb.BatchCommandsRequest{RequestIds: []uint64{1},
		Requests: []*tikvpb.BatchCommandsRequest_Request{{
			Cmd: &tikvpb.BatchCommandsRequest_Request_RawGet{RawGet: &kvrpcpb.RawGetRequest{}}}}}))
	_, err = stream.Recv()
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.ErrorContains(t, err, "RawGet")
}

func TestRequestForAnotherRegionIsNotServed(t *testing.T) {
	conn, stop := start(t, Config{})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := tikvpb.NewTikvClient(conn).KvGet(ctx, &kvrpcpb.GetRequest{Key: []byte("k"), Context: &kvrpcpb.Context{RegionId: 99}})
	require.NoError(t, err)
	require.NotNil(t, r.GetRegionError().GetRegionNotFound())
}

// A reader that met the locks has a commit below its own timestamp refused. That is no fault of the connection, on which
// the requests of others wait for their answers.
func TestOnePhaseThatAReaderForbidsGoesOnInTwo(t *testing.T) {
	conn, stop := start(t, Config{})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	got, err := pdpb.NewPDClient(conn).GetRegion(ctx, &pdpb.GetRegionRequest{RegionKey: []byte("k")})
	require.NoError(t, err)
	region := &kvrpcpb.Context{RegionId: got.GetRegion().GetId(), RegionEpoch: got.GetRegion().GetRegionEpoch(), Peer: got.GetLeader()}
	forbidden := uint64(time.Now().Add(time.Hour).UnixMilli()) << logicalBits
	c := tikvpb.NewTikvClient(conn)
	p, err := c.KvPrewrite(ctx, &kvrpcpb.PrewriteRequest{Context: region, PrimaryLock: []byte("k"), StartVersion: 1, LockTtl: 3000,
		Mutations:   []*kvrpcpb.Mutation{{Op: kvrpcpb.Op_Put, Key: []byte("k"), Value: []byte("v")}},
		MinCommitTs: forbidden, TryOnePc: true})
	require.NoError(t, err)
	require.Empty(t, p.GetErrors())
	require.Zero(t, p.GetOnePcCommitTs())
	commit := func(ts uint64) *kvrpcpb.KeyError {
		r, err := c.KvCommit(ctx, &kvrpcpb.CommitRequest{Context: region, Keys: [][]byte{[]byte("k")}, StartVersion: 1, CommitVersion: ts})
		require.NoError(t, err)
		return r.GetError()
	}
	require.Equal(t, forbidden, commit(forbidden-1).GetCommitTsExpired().GetMinCommitTs())
	require.Nil(t, commit(forbidden))
}

func TestRunThatIsStoppedBeforeItServesHasNotFailed(t *testing.T) {
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := Open(Config{})
	require.NoError(t, err)
	s.grpc.Stop()
	require.NoError(t, s.Run(stopped))
}

func TestRunLeavesNothingBehind(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	dir := t.TempDir()
	for range 2 { // the second finds the path free
		conn, stop := start(t, Config{Path: dir})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		stream, err := pdpb.NewPDClient(conn).Tso(ctx)
		require.NoError(t, err)
		require.NoError(t, stream.Send(&pdpb.TsoRequest{Count: 3}))
		got, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, uint32(3), got.GetCount())
		cancel()
		stop()
	}
	// It ends with its own ticker, a second later.
	goleak.VerifyNone(t, leaks, goleak.IgnoreTopFunction("github.com/pingcap/goleveldb/leveldb.(*DB).mpoolDrain"))
}
