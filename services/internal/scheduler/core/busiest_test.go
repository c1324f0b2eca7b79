package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestI11_TheBusiestTenantsAreListedUpToABound(t *testing.T) {
	r := newRig(t, nil)
	require.Empty(t, r.core.Busiest(2))
	for tenant, n := range map[string]int{"some": 3, "many": 7, "one": 1, "alike": 3} {
		r.accept(sink(tenant, "a"), n, 1)
	}
	require.Equal(t, []Load{{"many", 7}, {"alike", 3}, {"some", 3}}, r.core.Busiest(3))
	require.Len(t, r.core.Busiest(100), 4)
	r.join(1, 100)
	r.first(hook.Delivered)
	r.deliver()
	require.Empty(t, r.core.Busiest(100))
}
