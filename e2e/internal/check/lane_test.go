package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/check"
	"ankusa.dev/e2e/internal/history"
)

// ordered are hooks of one lane, each sent when the one before was acknowledged.
func ordered(ids ...string) (all []history.Request) {
	for i, id := range ids {
		r := acked(id, "", "sha-"+id, 100*(i+1))
		r.Ordered, r.Lane = true, "k"
		all = append(all, r)
	}
	return all
}

func inTurn(id string, ms, status int) history.Attempt {
	a := answered(id, "sha-"+id, ms, status)
	a.OrderingKey = "k"
	return a
}

func TestALaneInOrderPasses(t *testing.T) {
	for name, in := range map[string]check.Input{
		"a retry holds the lane": {
			Requests: ordered("a", "b", "c"),
			Attempts: []history.Attempt{inTurn("a", 101, 503), inTurn("a", 400, 200), inTurn("b", 410, 200), inTurn("c", 420, 200)},
		},
		"a dead letter frees it": {
			Requests: ordered("a", "b"), Attempts: []history.Attempt{inTurn("a", 101, 410), inTurn("b", 300, 200)},
			DeadLetters: []history.DeadLetter{{ID: "a"}},
		},
		"a duplicate before its successor": {
			Requests: ordered("a", "b"),
			Attempts: []history.Attempt{inTurn("a", 101, 200), inTurn("a", 400, 200), inTurn("b", 410, 200)},
			Faults:   []history.Fault{kill(100, 300)},
		},
	} {
		report := check.Run(in)
		require.Empty(t, report.Violations, name)
		require.Equal(t, 1, report.Lanes, name)
	}
}

func TestHooksThatWereUnderWayTogetherMayGoEitherWay(t *testing.T) {
	requests := ordered("a", "b")
	requests[1].Sent = requests[0].Answered.Add(-1)
	report := check.Run(check.Input{
		Requests: requests, Attempts: []history.Attempt{inTurn("b", 400, 200), inTurn("a", 410, 200)},
	})
	require.Empty(t, report.Violations)
}

func TestLanesDoNotWaitForEachOther(t *testing.T) {
	requests := append(ordered("a", "b"), acked("c", "", "sha-c", 300))
	requests[1].Lane = "other"
	b := inTurn("b", 210, 200)
	b.OrderingKey = "other"
	report := check.Run(check.Input{
		Requests: requests, Attempts: []history.Attempt{b, inTurn("a", 210, 200), answered("c", "sha-c", 310, 200)},
	})
	require.Empty(t, report.Violations)
	require.Equal(t, 2, report.Lanes)
}

// TestSeededFaultsOfLanesAreFound has histories with one fault each.
func TestSeededFaultsOfLanesAreFound(t *testing.T) {
	overlap := inTurn("a", 400, 200)
	overlap.Answered = at(500)
	bare := inTurn("a", 101, 200)
	bare.OrderingKey = ""
	untold := ordered("a", "b")
	untold[1].Status, untold[1].ID = 503, ""
	for name, in := range map[string]check.Input{
		"swapped": {
			Requests: ordered("a", "b", "c"),
			Attempts: []history.Attempt{inTurn("b", 400, 200), inTurn("a", 410, 200), inTurn("c", 420, 200)},
		},
		"swapped, far apart": {
			Requests: ordered("a", "b", "c", "d"),
			Attempts: []history.Attempt{
				inTurn("d", 500, 200), inTurn("a", 510, 200), inTurn("b", 520, 200), inTurn("c", 530, 200),
			},
		},
		"swapped with a hook that nobody was told of": {
			Requests: untold, Attempts: []history.Attempt{inTurn("b", 400, 200), inTurn("a", 410, 200)},
		},
		"two at once": {
			Requests: ordered("a", "b"), Attempts: []history.Attempt{overlap, inTurn("b", 450, 200)},
		},
		"went on while the head still failed": {
			Requests:    ordered("a", "b"),
			Attempts:    []history.Attempt{inTurn("a", 400, 503), inTurn("b", 410, 200), inTurn("a", 420, 410)},
			DeadLetters: []history.DeadLetter{{ID: "a"}},
		},
		"a duplicate after its successor, fault or not": {
			Requests: ordered("a", "b"),
			Attempts: []history.Attempt{inTurn("a", 400, 200), inTurn("b", 410, 200), inTurn("a", 420, 200)},
			Faults:   []history.Fault{kill(390, 500)},
		},
		"without its key": {Requests: ordered("a"), Attempts: []history.Attempt{bare}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, []check.Invariant{check.Disordered}, broken(in)) })
	}
}

func TestARepeatedEventCountsFromItsFirstRequest(t *testing.T) {
	requests := ordered("a", "b")
	for i := range requests {
		requests[i].Key = requests[i].ID
	}
	early := requests[1]
	early.Sent, early.Status, early.ID = at(50), 0, ""
	report := check.Run(check.Input{
		Requests: append([]history.Request{early}, requests...),
		Attempts: []history.Attempt{inTurn("b", 400, 200), inTurn("a", 410, 200)},
	})
	require.Empty(t, report.Violations, "its first request may have been stored before the other was")
}

func TestAnAttemptThatIsBeingAnsweredIsHeldAgainstEverySuccessor(t *testing.T) {
	long := inTurn("a", 400, 200)
	long.Answered = at(500)
	report := check.Run(check.Input{
		Requests: ordered("a", "b", "c", "d"),
		Attempts: []history.Attempt{long, inTurn("b", 410, 200), inTurn("c", 420, 200), inTurn("d", 600, 200)},
	})
	var hooks []string
	for _, v := range report.Violations {
		hooks = append(hooks, v.Hook)
	}
	require.Equal(t, []string{"b", "c"}, hooks)
}
