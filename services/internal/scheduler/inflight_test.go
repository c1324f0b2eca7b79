package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

const inflightHead = `
# HELP ankusa_dispatch_tenant_inflight Rows claimed and not settled, of the 100 tenants that hold the most.
# TYPE ankusa_dispatch_tenant_inflight gauge
`

func TestTheLeaderShowsHowManyRowsEachTenantHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := led(t, testConfig())
		standby := s.start(testConfig())
		s.source(n, "demo", 2)
		w := s.writer()
		w.connect(n)
		for tenant, rows := range map[string]int{"acme": 3, "busy": 5} {
			w.accept("demo", tenant, rows)
		}
		synctest.Wait()
		want := inflightHead + "ankusa_dispatch_tenant_inflight{tenant=\"acme\"} 6\nankusa_dispatch_tenant_inflight{tenant=\"busy\"} 10\n"
		require.NoError(t, testutil.CollectAndCompare(newInflight(n.Scheduler), strings.NewReader(want)))
		require.Zero(t, testutil.CollectAndCount(newInflight(standby.Scheduler)), "a standby claims nothing")
		n.stop()
		require.Zero(t, testutil.CollectAndCount(newInflight(n.Scheduler)))
	})
}
