package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestI4_ALeaderWithNothingToTellSaysThat: only silence tells a runner that its leader was stopped.
func TestI4_ALeaderWithNothingToTellSaysThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := led(t, testConfig())
		r := newRunner(t)
		r.connect(n, 8, nil, nil)
		for range 3 {
			before := time.Now()
			r.hear()
			require.LessOrEqual(t, time.Since(before), testConfig().Renew)
		}
		require.Empty(t, r.attempts)
		require.Empty(t, r.settled)
	})
}
