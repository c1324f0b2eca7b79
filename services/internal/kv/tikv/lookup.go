package tikv

import (
	"context"
	"time"

	"github.com/pingcap/kvproto/pkg/metapb"
	pd "github.com/tikv/pd/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lookupPause spaces the look-ups of a store while PD is away.
const lookupPause = 200 * time.Millisecond

// lookup is a PD client that looks stores up until PD answers, where the caller sets no end. The client's own loops do
// that when a store fails: were they told of a failure, because PD is away as well, they would leave the store unused
// until their next round, half a minute later.
type lookup struct {
	pd.Client
	life context.Context
}

// GetStore implements pd.Client.
func (l lookup) GetStore(ctx context.Context, id uint64) (*metapb.Store, error) {
	for {
		found, err := l.Client.GetStore(ctx, id)
		if ctx.Done() != nil || !away(err) {
			return found, err
		}
		select {
		case <-time.After(lookupPause):
		case <-l.life.Done():
			return found, err
		}
	}
}

// away says whether an error means that PD did not answer.
func away(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	default:
		return false
	}
}
