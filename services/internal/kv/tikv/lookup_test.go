package tikv

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/stretchr/testify/require"
	pd "github.com/tikv/pd/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// flakyPD fails as often as it has errors, and then answers.
type flakyPD struct {
	pd.Client
	errs  []error
	calls int
}

func (f *flakyPD) GetStore(context.Context, uint64) (*metapb.Store, error) {
	f.calls++
	if f.calls <= len(f.errs) {
		return nil, f.errs[f.calls-1]
	}
	return &metapb.Store{Id: 1}, nil
}

// TestL03_AStoreIsLookedUpUntilPDIsBack: else the client would leave it unused for half a minute more.
func TestL03_AStoreIsLookedUpUntilPDIsBack(t *testing.T) {
	gone := status.Error(codes.Unavailable, "gone")
	synctest.Test(t, func(t *testing.T) {
		f := &flakyPD{errs: []error{gone, status.Error(codes.DeadlineExceeded, "late"), gone}}
		began := time.Now()
		found, err := lookup{Client: f, life: t.Context()}.GetStore(context.Background(), 1)
		require.NoError(t, err)
		require.Equal(t, uint64(1), found.GetId())
		require.Equal(t, 3*lookupPause, time.Since(began))
	})
}

func TestALookUpEndsWithTheStoreAndWithWhatPDSays(t *testing.T) {
	gone := status.Error(codes.Unavailable, "gone")
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := lookup{Client: &flakyPD{errs: []error{gone}}, life: ended}.GetStore(context.Background(), 1)
	require.ErrorIs(t, err, gone)

	unknown := errors.New("no such store")
	_, err = lookup{Client: &flakyPD{errs: []error{unknown}}, life: t.Context()}.GetStore(context.Background(), 1)
	require.ErrorIs(t, err, unknown)

	_, err = lookup{Client: &flakyPD{errs: []error{gone}}, life: t.Context()}.GetStore(t.Context(), 1)
	require.ErrorIs(t, err, gone, "the caller has an end of its own, and tries again itself")
}
