package accept

import (
	"context"
	"time"
)

// inflation admits as many requests as there are processors to inflate their bodies at once: each holds up to the cap
// of a body that no budget counts, whatever little of it came over the wire.
type inflation chan struct{}

// do runs the work once there is a place. It fails with errStale after the wait, or as ctx does, without running it.
func (i inflation) do(ctx context.Context, wait time.Duration, work func()) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case i <- struct{}{}:
		defer func() { <-i }()
		work()
		return nil
	case <-timer.C:
		return errStale
	case <-ctx.Done():
		return ctx.Err()
	}
}
