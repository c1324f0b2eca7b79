package scenario_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/check"
	"ankusa.dev/e2e/internal/harness"
	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/load"
	"ankusa.dev/e2e/internal/receiver"
)

// keys names lanes.
func keys(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("entity-%d", i))
	}
	return names
}

// orderedSink is a sink whose lanes go by a header, or which is one lane.
func (w *world) orderedSink(path string, byHeader bool) []any {
	sink := w.sink(path)[0].(map[string]any)
	sink["ordered"] = true
	if byHeader {
		sink["ordering_key"] = map[string]any{"header": "x-entity"}
	}
	return []any{sink}
}

// laned are sources with many lanes, with and without deduplication, and one that is a single lane.
func (w *world) laned() map[string]any {
	return map[string]any{
		"raw": map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.orderedSink("/raw", true)},
		"pay": map[string]any{
			"verify": map[string]any{"type": "stripe", "secret": stripeSecret},
			"dedupe": map[string]any{"preset": "stripe"}, "sinks": w.orderedSink("/pay", true),
		},
		"single": map[string]any{"verify": map[string]any{"type": "none"}, "sinks": w.orderedSink("/single", false)},
	}
}

// lanes has no factor in common with the number of makers nor of ingests, so that each lane meets all of them.
const lanes = 25

// lanedMakers play the providers of laned sources.
func lanedMakers() []load.Maker {
	return []load.Maker{
		load.InLanes(load.Plain("raw", 300), keys(lanes)...), load.InLanes(load.Stripe("pay", stripeSecret), keys(lanes)...),
		load.InLanes(load.Plain("single", 300), ""),
	}
}

func TestI6_ALaneIsDeliveredOneAtATimeInTheOrderOfItsAcknowledgements(t *testing.T) {
	for name, c := range map[string]struct {
		o     harness.Options
		start func(context.Context, harness.Options) (*harness.Cluster, error)
	}{
		"one process": {harness.Options{}, harness.StartOne},
		"four kinds":  {harness.Options{Schedulers: 2, Ingests: 2, Runners: 2}, harness.StartFour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.o.Sources = w.laned()
			w.receiver.Behave("/raw", receiver.Script(receiver.Answer(503), receiver.Answer(200)))
			w.receiver.Behave("/pay", receiver.After(10*time.Millisecond, receiver.Answer(200)))
			w.start(c.o, c.start)
			count := scaled(600, 6_000)
			w.send(load.Config{Makers: lanedMakers(), Workers: 16, Rate: 100, Count: count})
			w.complete()
			report := w.finish()
			require.Equal(t, count, report.Delivered)
			require.Zero(t, report.Duplicates)
			require.Equal(t, 2*lanes+1, report.Lanes)
			require.Equal(t, count/3*2, w.attemptsByPath()["/raw"], "each failed once")
			w.nobodyDied()
		})
	}
}

// TestI6_ALaneKeepsItsOrderWhenAProcessIsKilled: a duplicate stays in order, too.
func TestI6_ALaneKeepsItsOrderWhenAProcessIsKilled(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/raw", "/pay", "/single"} {
		w.receiver.Behave(path, receiver.After(10*time.Millisecond, receiver.Answer(200)))
	}
	w.start(harness.Options{Sources: w.laned(), Schedulers: 2, Ingests: 2, Runners: 2}, harness.StartFour)
	w.send(load.Config{Makers: lanedMakers(), Resend: true, Workers: 16, Rate: 100})
	for range scaled(1, 5) {
		leader := w.leader()
		for _, p := range []*harness.Process{
			w.cluster.Runners[0], w.cluster.Schedulers[leader], w.cluster.Ingests[0], w.cluster.Runners[1],
		} {
			w.flow(some)
			w.kill(p)
			w.delivers()
		}
	}
	require.Equal(t, 2*lanes+1, w.finish().Lanes)
	w.nobodyDied()
}

func TestI6_ALaneKeepsItsOrderWhenTheOnlyProcessIsKilled(t *testing.T) {
	w := newWorld(t)
	w.receiver.Behave("/raw", receiver.After(10*time.Millisecond, receiver.Answer(200)))
	w.start(harness.Options{Sources: w.laned()}, harness.StartOne)
	w.send(load.Config{Makers: lanedMakers(), Resend: true, Workers: 16, Rate: 100})
	for range scaled(3, 20) {
		w.flow(some)
		w.kill(w.cluster.One)
	}
	w.flow(some)
	require.Equal(t, 2*lanes+1, w.finish().Lanes)
	w.nobodyDied()
}

// TestI6_ALaneKeepsItsOrderAcrossLeaders: SIGSTOP of the leader past its lease, a successor, SIGCONT.
func TestI6_ALaneKeepsItsOrderAcrossLeaders(t *testing.T) {
	w := newWorld(t)
	w.start(harness.Options{Sources: w.laned(), Schedulers: 2, Ingests: 2, Runners: 2}, harness.StartFour)
	w.send(load.Config{Makers: lanedMakers(), Resend: true, Workers: 16, Rate: 100})
	for range scaled(2, 10) {
		w.flow(some)
		leader := w.leader()
		w.disturbed(history.LeaderPaused, w.cluster.Schedulers[leader].Name, func() {
			require.NoError(t, w.cluster.Schedulers[leader].Pause(t.Context()))
			require.NotEqual(t, leader, w.leader())
			w.delivers()
			require.NoError(t, w.cluster.Schedulers[leader].Resume())
		})
		w.delivers()
	}
	require.Equal(t, 2*lanes+1, w.finish().Lanes)
	w.nobodyDied()
}

// TestABlockedLaneHoldsNobodyUpButItself has one lane whose hooks are refused for good, and one that answers nothing but
// failures until all others are through.
func TestABlockedLaneHoldsNobodyUpButItself(t *testing.T) {
	const each = 10
	w := newWorld(t)
	blocked := map[string]receiver.Behaviour{"entity-0": receiver.Answer(410), "entity-1": receiver.Answer(503)}
	w.receiver.Behave("/raw", receiver.ByLane(blocked, receiver.Answer(200)))
	w.start(harness.Options{Sources: map[string]any{"raw": map[string]any{
		"verify": map[string]any{"type": "none"}, "sinks": w.orderedSink("/raw", true),
	}}}, harness.StartOne)
	w.send(load.Config{Makers: []load.Maker{load.InLanes(load.Plain("raw", 100), keys(7)...)}, Workers: 4, Count: 7 * each})
	w.complete()
	var free []string
	requests, err := history.Read[history.Request](w.load.LogPath())
	require.NoError(t, err)
	for i := range requests {
		if blocked[requests[i].Lane] == nil {
			free = append(free, requests[i].ID)
		}
	}
	require.Len(t, free, 5*each)
	ctx, cancel := w.soon()
	defer cancel()
	require.NoError(t, w.receiver.Wait(ctx, func() bool { return len(w.receiver.Lacks(free)) == 0 }))
	require.Equal(t, len(free), w.receiver.Confirmed())
	w.receiver.Behave("/raw", receiver.ByLane(map[string]receiver.Behaviour{"entity-0": blocked["entity-0"]}, receiver.Answer(200)))
	report := w.finish()
	require.Equal(t, each, report.Dead, "the lane goes on behind each dead letter")
	require.Equal(t, 6*each, report.Delivered)
	require.Equal(t, 7, report.Lanes)
}

// TestI2_ASinkMayBecomeOrderedAndBackUnderLoad: rows of both kinds are pending when the process is killed, and each is
// found.
func TestI2_ASinkMayBecomeOrderedAndBackUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.receiver.Behave("/raw", receiver.Script(receiver.After(50*time.Millisecond, receiver.Answer(503)), receiver.Answer(200)))
	forms := []map[string]any{
		{"verify": map[string]any{"type": "none"}, "sinks": w.orderedSink("/raw", true)},
		{"verify": map[string]any{"type": "none"}, "sinks": w.sink("/raw")},
	}
	w.start(harness.Options{Sources: map[string]any{"raw": forms[1]}}, harness.StartOne)
	entity := load.Plain("raw", 100)
	w.send(load.Config{Resend: true, Workers: 16, Rate: 100, Makers: []load.Maker{func(seq int) (load.Event, error) {
		e, err := entity(seq)
		e.Header.Set("X-Entity", fmt.Sprint(seq%lanes))
		return e, err
	}}})
	for i := range scaled(4, 20) {
		form, err := json.Marshal(forms[i%2])
		require.NoError(t, err)
		ctx, cancel := w.soon()
		status, body := w.request(ctx, http.MethodPut, w.cluster.Admin+"/v1/tenants/default/sources/raw", form)
		cancel()
		require.Equal(t, http.StatusOK, status, body)
		w.flow(2 * some) // a change reaches every ingest within a second
		if i%2 == 1 {
			w.kill(w.cluster.One)
		}
	}
	w.finish()
	w.nobodyDied()
	attempts, err := history.Read[history.Attempt](w.receiver.LogPath())
	require.NoError(t, err)
	kinds := map[bool]int{}
	for i := range attempts {
		kinds[attempts[i].OrderingKey != ""]++
	}
	require.Len(t, kinds, 2, "some in order and some not")
}

// TestASwapOfTwoHooksOfALaneIsFoundInARealRun has a front that confirms a hook, and passes it on behind the next one.
func TestASwapOfTwoHooksOfALaneIsFoundInARealRun(t *testing.T) {
	w := newWorld(t)
	behind := front(t, w.receiver.URL(""), map[string]harm{"/swapped": swapFirstTwo()})
	sink := w.orderedSink("/", true)
	sink[0].(map[string]any)["url"] = behind + "/swapped"
	w.start(harness.Options{Sources: map[string]any{
		"swapped": map[string]any{"verify": map[string]any{"type": "none"}, "sinks": sink},
	}}, harness.StartOne)
	w.send(load.Config{Makers: []load.Maker{load.InLanes(load.Plain("swapped", 100), "k")}, Workers: 1, Count: 10})
	w.complete()
	report := w.verdict(patience)
	require.Len(t, report.Violations, 1)
	require.Equal(t, check.Disordered, report.Violations[0].Invariant)
	acked := w.load.Acked()
	require.Equal(t, acked[1], report.Violations[0].Hook)
	require.Contains(t, report.Violations[0].Detail, acked[0])
}

func swapFirstTwo() harm {
	var mu sync.Mutex
	var held *http.Request
	calls := 0
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		switch calls++; calls {
		case 1:
			body, _ := io.ReadAll(r.Body)
			held = r.Clone(context.WithoutCancel(r.Context()))
			held.Body = io.NopCloser(bytes.NewReader(body))
			w.WriteHeader(http.StatusOK)
		case 2:
			next.ServeHTTP(w, r)
			next.ServeHTTP(httptest.NewRecorder(), held)
		default:
			next.ServeHTTP(w, r)
		}
	}
}
