package sinkrunner

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/wire"
)

// ledger is what a leader knows about the leases that it gave.
type ledger struct {
	t        *testing.T
	random   *rand.Rand
	next     uint64
	open     map[hook.Lease]bool // given, and neither settled, dropped nor lost
	ended    map[hook.Lease]bool // of these, reported
	dropped  map[hook.ID]bool
	lost     map[hook.ID]bool
	reported map[hook.ID]bool
}

// hear takes a hello: what is open and not in it never began.
func (l *ledger) hear(h wire.Hello) {
	told := map[hook.Lease]bool{}
	for _, r := range h.Running {
		told[r.Lease] = true
	}
	for _, r := range h.Unacknowledged {
		told[r.Lease] = true
		l.end(r)
	}
	for lease := range l.open {
		if !told[lease] {
			require.False(l.t, l.ended[lease], "an outcome was forgotten before it was settled")
			delete(l.open, lease)
			l.lost[hookOf(lease)] = true
		}
	}
}

func (l *ledger) end(r hook.Report) {
	l.reported[r.Row.Hook] = true
	if l.open[r.Lease] {
		l.ended[r.Lease] = true
	}
}

// collect reads what the runner has said.
func (l *ledger) collect(f *fakeStream) {
	synctest.Wait()
	for len(f.got) > 0 {
		list, err := wire.ReadReports((<-f.got).GetOutcomes().GetOutcomes())
		require.NoError(l.t, err)
		for _, r := range list {
			l.end(r)
		}
	}
}

func hookOf(lease hook.Lease) hook.ID { return attempt(lease.ID).Row.Hook }

// act does one thing that a leader does.
func (l *ledger) act(f *fakeStream) {
	switch l.random.IntN(3) {
	case 0:
		batch := make([]wire.Attempt, 1+l.random.IntN(20))
		for i := range batch {
			l.next++
			batch[i] = attempt(l.next)
			l.open[batch[i].Lease] = true
		}
		f.lease(batch...)
	case 1:
		var settled []hook.Lease
		for lease := range l.ended {
			if l.random.IntN(2) == 0 {
				settled = append(settled, lease)
				l.forget(lease)
			}
		}
		f.settle(settled...)
	case 2:
		for lease := range l.open {
			f.drop(lease)
			l.forget(lease)
			l.dropped[hookOf(lease)] = true
			break
		}
	}
}

func (l *ledger) forget(lease hook.Lease) {
	delete(l.open, lease)
	delete(l.ended, lease)
}

func TestI5_WhateverBecomesOfTheStreamsTheLeaderHearsOfEveryDelivery(t *testing.T) {
	for seed := range uint64(8) {
		inBubble(t, nil, func(h *harness) { history(t, h, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func history(t *testing.T, h *harness, random *rand.Rand) {
	h.sink.deliver = func(ctx context.Context, d *sink.Delivery) hook.Outcome {
		select {
		case <-time.After(time.Duration(d.Hook.ID[1]) * 20 * time.Millisecond):
			return hook.Outcome{Class: hook.Delivered}
		case <-ctx.Done():
			return hook.Outcome{Class: hook.Transient}
		}
	}
	l := &ledger{
		t: t, random: random, open: map[hook.Lease]bool{}, ended: map[hook.Lease]bool{},
		dropped: map[hook.ID]bool{}, lost: map[hook.ID]bool{}, reported: map[hook.ID]bool{},
	}
	f := h.stream()
	f.welcome(1)
	for range 200 {
		l.act(f)
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		}
		if random.IntN(8) == 0 { // what was sent may have arrived or not
			f.finish(errGone)
			for len(f.got) > 0 {
				<-f.got // the leader that heard it is gone
			}
			f = h.stream()
			l.hear(f.hello)
			f.welcome(1)
		} else {
			l.collect(f)
		}
	}
	for len(l.open) > 0 { // every attempt that runs ends at last
		time.Sleep(time.Second)
		l.collect(f)
		for lease := range l.ended {
			f.settle(lease)
			l.forget(lease)
		}
	}
	synctest.Wait()
	running, unacknowledged := h.runner.book.counts()
	require.Equal(t, []int{0, 0}, []int{running, unacknowledged})
	begun := map[hook.ID]int{}
	for _, d := range h.sink.delivered {
		begun[d.Hook.ID]++
	}
	require.Greater(t, len(begun), 100)
	for id, times := range begun {
		require.Equal(t, 1, times, "an attempt is made once")
		require.True(t, l.reported[id] || l.dropped[id], "a delivery of which no leader heard")
		require.False(t, l.lost[id], "a lease that was taken for lost was delivered")
	}
}
