package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/check"
	"ankusa.dev/e2e/internal/history"
)

var epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

func acked(id, key, sha string, ms int) history.Request {
	return history.Request{Seq: ms, Source: "s", Key: key, BodySHA256: sha, Sent: at(ms - 1), Answered: at(ms), Status: 201, ID: id}
}

func answered(id, sha string, ms, status int) history.Attempt {
	return history.Attempt{
		ID: id, Source: "s", IdempotencyKey: id, BodySHA256: sha, ClaimedSHA256: sha,
		Arrived: at(ms), Answered: at(ms + 1), Status: status,
	}
}

func kill(from, to int) history.Fault {
	return history.Fault{Kind: history.ProcessLost, Target: "ankusa", From: at(from), To: at(to)}
}

func pause(from, to int) history.Fault {
	return history.Fault{Kind: history.LeaderPaused, Target: "scheduler", From: at(from), To: at(to)}
}

// broken lists the invariants that a history violates.
func broken(in check.Input) []check.Invariant {
	var kinds []check.Invariant
	for _, v := range check.Run(in).Violations {
		kinds = append(kinds, v.Invariant)
	}
	return kinds
}

func TestAnUndisturbedRunPasses(t *testing.T) {
	report := check.Run(check.Input{
		Requests: []history.Request{acked("a", "", "x", 10), acked("b", "k", "y", 20), {Seq: 3, Source: "s", BodySHA256: "z", Status: 503}},
		Attempts: []history.Attempt{
			answered("a", "x", 11, 503), answered("a", "x", 200, 200),
			answered("b", "y", 21, 410),
			answered("u", "z", 30, 200),
		},
		DeadLetters: []history.DeadLetter{{ID: "b"}},
	})
	require.Empty(t, report.Violations)
	require.Equal(t, check.Report{Acked: 2, Delivered: 1, Dead: 1, Unknown: 1, Unanswered: 1}, report)
}

// ok is acknowledged, done its only attempt.
var (
	ok   = acked("a", "", "x", 10_000)
	done = answered("a", "x", 10_010, 200)
)

// seeded are histories with one fault each, and the invariant that it breaks.
var seeded = map[string]struct {
	in   check.Input
	want check.Invariant
}{
	"I1 early ack before a kill": {check.Input{
		Requests: []history.Request{ok}, Faults: []history.Fault{kill(10_100, 12_000)},
	}, check.EarlyAck},
	"I1 2xx without an id": {check.Input{
		Requests: []history.Request{{Seq: 1, Source: "s", BodySHA256: "z", Status: 200}, ok},
		Attempts: []history.Attempt{done, answered("", "z", 1, 200)},
	}, check.EarlyAck},
	"I1 duplicate answer for a hook that is nowhere": {check.Input{
		Requests: []history.Request{{Seq: 1, Source: "s", Key: "k", BodySHA256: "x", Status: 201, ID: "a", Duplicate: true, Answered: at(9_000)}},
		Faults:   []history.Fault{kill(9_500, 9_900)},
	}, check.EarlyAck},
	"I1 L01 acknowledged while the store was away": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{answered("a", "x", 31_000, 200)},
		Faults: []history.Fault{{Kind: history.StoreLost, From: at(9_000), To: at(30_000)}},
	}, check.EarlyAck},
	"I2 loss": {check.Input{Requests: []history.Request{ok}}, check.Lost},
	"I2 loss long before a kill": {check.Input{
		Requests: []history.Request{ok}, Faults: []history.Fault{kill(30_000, 31_000)},
	}, check.Lost},
	"I3 gone after a failure": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{answered("a", "x", 10_010, 503)},
	}, check.Unconfirmed},
	"I4 repeated by a continued leader": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{done, answered("a", "x", 30_001, 200)},
		Faults: []history.Fault{pause(10_005, 30_000), kill(10_005, 30_000)},
	}, check.Deposed},
	"I5 duplicate": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{done, answered("a", "x", 10_500, 200)},
	}, check.Repeated},
	"I5 duplicate of a delivery that was settled long before the kill": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{done, answered("a", "x", 40_000, 200)},
		Faults: []history.Fault{kill(30_000, 31_000)},
	}, check.Repeated},
	"I5 two attempts at once": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{
			{ID: "a", Source: "s", BodySHA256: "x", Arrived: at(10_010), Answered: at(10_900), Status: 503},
			{ID: "a", Source: "s", BodySHA256: "x", Arrived: at(10_500), Answered: at(10_950), Status: 200},
		},
	}, check.Repeated},
	"I5 a change of leader is no excuse": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{done, answered("a", "x", 20_000, 200)},
		Faults: []history.Fault{pause(10_005, 30_000)},
	}, check.Repeated},
	"I12 changed byte": {check.Input{
		Requests: []history.Request{ok}, Attempts: []history.Attempt{answered("a", "x2", 10_010, 200)},
	}, check.Changed},
	"I12 digest that does not fit": {check.Input{
		Requests: []history.Request{ok},
		Attempts: []history.Attempt{{ID: "a", Source: "s", BodySHA256: "x", ClaimedSHA256: "w", Arrived: at(10_010), Answered: at(10_011), Status: 200}},
	}, check.Changed},
	"delivered although refused": {check.Input{
		Requests: []history.Request{{Seq: 1, Source: "s", BodySHA256: "x", Status: 401}},
		Attempts: []history.Attempt{answered("a", "x", 10_010, 200)},
	}, check.Invented},
	"delivered although nobody sent it": {check.Input{
		Attempts: []history.Attempt{answered("a", "x", 10_010, 200)},
	}, check.Invented},
	"L09 one event, two hooks": {check.Input{
		Requests: []history.Request{acked("a", "k", "x", 10), acked("b", "k", "x", 11)},
		Attempts: []history.Attempt{answered("a", "x", 12, 200), answered("b", "x", 13, 200)},
	}, check.Forked},
	"one id, two events": {check.Input{
		Requests: []history.Request{acked("a", "", "x", 10), acked("a", "", "x", 11)},
		Attempts: []history.Attempt{answered("a", "x", 12, 200)},
	}, check.Forked},
	"L08 idempotency key that moves": {check.Input{
		Requests: []history.Request{ok},
		Attempts: []history.Attempt{
			{ID: "a", Source: "s", IdempotencyKey: "1", BodySHA256: "x", Arrived: at(10_010), Answered: at(10_011), Status: 500},
			{ID: "a", Source: "s", IdempotencyKey: "2", BodySHA256: "x", Arrived: at(10_020), Answered: at(10_021), Status: 200},
		},
	}, check.Forked},
	"bad signature": {check.Input{
		Requests: []history.Request{ok},
		Attempts: []history.Attempt{{ID: "a", Source: "s", BodySHA256: "x", Arrived: at(10_010), Answered: at(10_011), Status: 200, BadSignature: "no match"}},
	}, check.Unsigned},
	"L20 earlier than Retry-After": {check.Input{
		Requests: []history.Request{ok},
		Attempts: []history.Attempt{
			{ID: "a", Source: "s", BodySHA256: "x", Arrived: at(10_010), Answered: at(10_011), Status: 429, RetryAfter: time.Second},
			{ID: "a", Source: "s", BodySHA256: "x", Arrived: at(10_900), Answered: at(10_901), Status: 200},
		},
	}, check.Hasty},
}

func TestSeededFaultsAreFound(t *testing.T) {
	for name, c := range seeded {
		t.Run(name, func(t *testing.T) { require.Equal(t, []check.Invariant{c.want}, broken(c.in)) })
	}
}

func TestADuplicateInAFaultWindowIsCountedAndExplained(t *testing.T) {
	report := check.Run(check.Input{
		Requests: []history.Request{acked("a", "", "x", 10_000)},
		Attempts: []history.Attempt{answered("a", "x", 10_010, 200), answered("a", "x", 30_000, 200)},
		Faults:   []history.Fault{kill(10_012, 11_000)},
	})
	require.Empty(t, report.Violations)
	require.Equal(t, 1, report.Duplicates)
	require.Equal(t, 1, report.Explained)
}

func TestAResentEventKeepsItsHook(t *testing.T) {
	again := acked("a", "k", "x", 500)
	again.Duplicate = true
	report := check.Run(check.Input{
		Requests: []history.Request{{Seq: 1, Source: "s", Key: "k", BodySHA256: "x", Error: "connection reset"}, acked("a", "k", "x", 400), again},
		Attempts: []history.Attempt{answered("a", "x", 401, 200)},
	})
	require.Empty(t, report.Violations)
	require.Equal(t, 1, report.Acked)
}
