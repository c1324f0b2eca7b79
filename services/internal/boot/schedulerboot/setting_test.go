package schedulerboot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/scheduler/core"
)

func TestTenantsGetTheirOwnLimitsOrShares(t *testing.T) {
	c := config.Default()
	c.Dispatch.MaxInflight, c.Dispatch.MaxInflightBytes = 3, 1000
	c.Dispatch.Tenants = map[string]config.TenantLimits{
		"default": {Concurrency: new(7)},
		"acme":    {MaxInflight: new(2), MaxInflightBytes: new(int64(9))},
	}
	got := settings(c).Core
	require.Equal(t, core.Limits{MaxInflight: 1, MaxInflightBytes: 250, Concurrency: 7}, got.Default)
	require.Equal(t, map[string]core.Limits{"acme": {MaxInflight: 2, MaxInflightBytes: 9}}, got.Tenants)
}

func TestNullIsNoCap(t *testing.T) {
	c := config.Default()
	require.Equal(t, 8, settings(c).Core.SinkConcurrency)
	require.Zero(t, settings(c).Core.Concurrency)
	c.Dispatch.SinkConcurrency, c.Dispatch.Concurrency = nil, new(12)
	require.Zero(t, settings(c).Core.SinkConcurrency)
	require.Equal(t, 12, settings(c).Core.Concurrency)
}

func TestOnlyTheLocalStoreIsExclusive(t *testing.T) {
	c := config.Default()
	require.True(t, settings(c).Exclusive)
	c.Store.Type = config.StoreTiKV
	require.False(t, settings(c).Exclusive)
}
