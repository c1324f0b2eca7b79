package tikvboot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv/tikv"
)

func process(role config.Role, roles ...string) *boot.Process {
	c := config.Default()
	c.Store.Type, c.Store.PD = config.StoreTiKV, []string{"pd:2379"}
	return &boot.Process{Role: role, Roles: roles, Config: c}
}

func TestTheSchedulerAloneCollectsOldVersions(t *testing.T) {
	require.True(t, settings(process(config.RoleScheduler)).GC.Enabled)
	require.True(t, settings(process(config.RoleAll)).GC.Enabled)
	require.True(t, settings(process(config.RoleAll, "ingest", "scheduler")).GC.Enabled)
	require.False(t, settings(process(config.RoleAll, "ingest", "sink-runner")).GC.Enabled)
	require.False(t, settings(process(config.RoleIngest)).GC.Enabled)
	require.False(t, settings(process(config.RoleSinkRunner)).GC.Enabled)
	p := process(config.RoleScheduler)
	p.Config.Scheduler.GC = false
	require.False(t, settings(p).GC.Enabled)
}

func TestTheFileSaysWhereTheClusterIsAndWhatOfItIsOurs(t *testing.T) {
	p := process(config.RoleIngest)
	require.NoError(t, settings(p).Validate())
	require.Equal(t, tikv.Default().KeyPrefix, settings(p).KeyPrefix)
	require.Equal(t, tikv.Default().Patience, settings(p).Patience)
	p.Config.Store.KeyPrefix, p.Config.Store.Patience = "blue", time.Second
	p.Config.Store.TLS = config.TLS{Cert: "cert", Key: "key", CA: "ca"}
	c := settings(p)
	require.Equal(t, []string{"pd:2379"}, c.PD)
	require.Equal(t, "blue", c.KeyPrefix)
	require.Equal(t, time.Second, c.Patience)
	require.Equal(t, tikv.TLS{Cert: "cert", Key: "key", CA: "ca"}, c.TLS)
}
