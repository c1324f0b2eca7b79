package ingestboot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/config"
)

func TestEveryDefaultOfTheFileIsValidForTheRole(t *testing.T) {
	for _, role := range []config.Role{config.RoleAll, config.RoleIngest} {
		require.NoError(t, settings(config.Default(), role).Validate())
	}
}

func TestCommitsRunAtOnceWhereTheyWaitForNoCommonDisk(t *testing.T) {
	c := config.Default()
	require.Equal(t, 1, settings(c, config.RoleIngest).Accept.CommitsInFlight)
	c.Store.Type = config.StoreTiKV
	got := settings(c, config.RoleIngest)
	require.Equal(t, 4, got.Accept.CommitsInFlight)
	require.NoError(t, got.Validate())
}

func TestARootPrefixIsNoPrefix(t *testing.T) {
	c := config.Default()
	c.HTTP.Prefix, c.HTTP.Routing = "/", config.RoutingTenantPath
	got := settings(c, config.RoleIngest)
	require.Empty(t, got.HTTP.Prefix)
	require.True(t, got.HTTP.TenantFromURL)
	require.True(t, got.Accept.TenantFromURL)
}

func TestTheDrainsOfAllRolesFitIntoTheStop(t *testing.T) {
	c := config.Default()
	got := settings(c, config.RoleAll)
	require.LessOrEqual(t, 2*got.DrainTimeout+c.Runner.Drain+config.RunnerAcknowledge, c.Node.ShutdownTimeout)
	c.Runner.Drain = c.Node.ShutdownTimeout - config.RunnerAcknowledge
	require.Equal(t, time.Second, settings(c, config.RoleAll).DrainTimeout)
}
