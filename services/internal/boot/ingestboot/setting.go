package ingestboot

import (
	"time"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/ingest"
)

// tikvCommits is how many commits of a partition run at once on a store across a network, which takes as long for one as
// for several. Where commits take 5 ms, 4 at once accept twice as many hooks over 64 connections as one does.
const tikvCommits = 4

// settings turns the file's settings into the role's. Where other roles stop after it, ingest leaves them time.
func settings(c config.Config, role config.Role) ingest.Config {
	out := ingest.Default()
	tenantFromURL := c.HTTP.Routing == config.RoutingTenantPath
	h, a := &out.HTTP, &out.Accept
	h.Prefix, h.TenantFromURL, h.MinBodyRate = c.HTTP.Prefix, tenantFromURL, c.HTTP.MinBodyRate
	if h.Prefix == "/" {
		h.Prefix = ""
	}
	h.HeaderTimeout, h.BodyTimeout, h.IdleTimeout = c.HTTP.HeaderTimeout, c.HTTP.BodyTimeout, c.HTTP.IdleTimeout
	h.MaxConnections = c.HTTP.MaxConnections
	a.MaxBodyBytes, a.TenantFromURL = c.HTTP.MaxBodyBytes, tenantFromURL
	a.MaxBatch, a.MaxDelay = c.Batcher.MaxBatch, c.Batcher.MaxDelay
	a.MaxQueue, a.MaxQueueBytes = c.Batcher.MaxQueue, c.Batcher.MaxQueueBytes
	if c.Store.Type == config.StoreTiKV {
		a.CommitsInFlight = tikvCommits
	}
	out.DrainTimeout = c.Node.ShutdownTimeout / 2
	if role == config.RoleAll {
		out.DrainTimeout = max(time.Second, (c.Node.ShutdownTimeout-c.Runner.Drain-config.RunnerAcknowledge)/2)
	}
	return out
}
