// Package tikvboot opens a TiKV cluster as a configuration names it. Only mains import it: they choose the driver.
package tikvboot

import (
	"context"
	"slices"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/tikv"
)

// Open is a storeboot.Open.
func Open(ctx context.Context, p *boot.Process) (kv.Store, error) {
	return tikv.Open(ctx, settings(p), p.Log)
}

// settings has the scheduler alone collect old versions.
func settings(p *boot.Process) tikv.Config {
	from, c := p.Config.Store, tikv.Default()
	c.PD, c.KeyPrefix, c.Patience = from.PD, from.KeyPrefix, from.Patience
	c.TLS = tikv.TLS{CA: from.TLS.CA, Cert: from.TLS.Cert, Key: from.TLS.Key}
	c.GC.Enabled = p.Config.Scheduler.GC && slices.Contains(p.About().Roles, string(config.RoleScheduler))
	return c
}
