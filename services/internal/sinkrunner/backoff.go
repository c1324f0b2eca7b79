package sinkrunner

import (
	"math/rand/v2"
	"time"
)

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
	// steady is how long a stream lives before its end counts as a new failure.
	steady = 5 * time.Second
)

// backoff doubles a pause with every failure, from firstPause up to lastPause; half of each is drawn at random.
type backoff struct{ failures int }

func (b *backoff) next() time.Duration {
	pause := lastPause
	if b.failures < 6 {
		pause = min(firstPause<<b.failures, lastPause)
	}
	b.failures++
	return pause/2 + rand.N(pause/2)
}
