package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A sink that has become ordered still has rows that are members of no lane. The position has passed them, since their
// writer could tell nobody, and the counters do not tell them from members.
func TestI2_ARowBelowThePositionOfASinkThatBecameOrderedIsFound(t *testing.T) {
	r := newRig(t, nil)
	r.join(1, 10)
	lost := r.store(sink("t", "a"), 1, 10)
	r.pass(time.Minute)
	position := r.now
	r.pass(time.Second)
	r.members(r.tick(), "x", "y")
	r.core.Backlog(r.now, 0, sink("t", "a"), position, 3, true)
	r.finish(time.Minute)
	require.Contains(t, r.begun(), lost.Hooks[0])
	require.Empty(t, r.rows)
	r.idle()
}
