package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

// TestARowOfALaneIsSettledAtOnce: the next member waits for it, so that a wait for company would set the lane's pace.
func TestARowOfALaneIsSettledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members = 50
		s := newSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		s.orderedSource(n, "lane")
		w := s.writer()
		w.connect(n)
		_, groups := w.commit("lane", hook.DefaultTenant, members)
		w.notify(groups)
		r := newRunner(t)
		r.connect(n, 8, nil, nil)
		first := r.leased(1)[0]
		began := time.Now()
		r.settle(first, delivered)
		for range members - 1 {
			r.settle(r.leased(1)[0], delivered)
		}
		require.Less(t, time.Since(began), settleWait)
		require.Zero(t, s.outstanding())
		n.stop()
	})
}

// TestOutcomesWaitForCompany: those that come within settleWait of the first are one settle, and a row of a lane takes
// with it what waits.
func TestOutcomesWaitForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		n := s.start(testConfig())
		n.leads(t)
		s.orderedSource(n, "lane")
		s.source(n, "plain", 4)
		w := s.writer()
		w.connect(n)
		_, groups := w.commit("plain", hook.DefaultTenant, 1)
		w.notify(groups)
		r := newRunner(t)
		r.connect(n, 8, nil, nil)
		plain := r.leased(4)

		began := time.Now()
		r.report(plain[0], delivered)
		time.Sleep(settleWait / 2)
		r.report(plain[1], delivered)
		for !r.settled[plain[0].Lease] || !r.settled[plain[1].Lease] {
			r.hear()
		}
		require.Equal(t, settleWait, time.Since(began))

		_, groups = w.commit("lane", hook.DefaultTenant, 1)
		w.notify(groups)
		ordered := r.leased(1)[0]
		began = time.Now()
		r.report(plain[2], delivered)
		synctest.Wait()
		require.False(t, r.settled[plain[2].Lease])
		r.settle(ordered, delivered)
		for !r.settled[plain[2].Lease] {
			r.hear()
		}
		require.Less(t, time.Since(began), settleWait)
		r.settle(plain[3], delivered)
		n.stop()
	})
}
