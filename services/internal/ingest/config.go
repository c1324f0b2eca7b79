package ingest

import (
	"errors"
	"fmt"
	"time"

	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/ingest/httpapi"
)

// Config of an Ingest.
type Config struct {
	// HTTP is the listener's part, Accept that of the path to the commit. TenantFromURL is the same in both.
	HTTP   httpapi.Config
	Accept accept.Config
	// DrainTimeout bounds the end: finishing what was begun and having it acknowledged. Default 30 s.
	DrainTimeout time.Duration
}

// Default returns the configuration that each field's comment states.
func Default() Config {
	return Config{HTTP: httpapi.Default(), Accept: accept.Default(), DrainTimeout: 30 * time.Second}
}

// Validate returns every fault at once, or nil.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, key, constraint string, got any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s must be %s, got %v", key, constraint, got))
		}
	}
	a, h := c.Accept, c.HTTP
	check(a.MaxBodyBytes >= 1 && a.MaxBodyBytes <= 64<<20, "http.max_body_bytes", "1 to 67108864", a.MaxBodyBytes)
	check(a.TenantFromURL == h.TenantFromURL, "http.routing", "the same for all parts", h.TenantFromURL)
	check(h.Prefix == "" || h.Prefix[0] == '/' && h.Prefix[len(h.Prefix)-1] != '/', "http.prefix",
		"empty, or begin with a slash and not end with one", h.Prefix)
	check(h.HeaderTimeout > 0, "http.header_timeout_ms", "positive", h.HeaderTimeout)
	check(h.BodyTimeout > 0, "http.body_timeout_ms", "positive", h.BodyTimeout)
	check(h.IdleTimeout > 0, "http.idle_timeout_ms", "positive", h.IdleTimeout)
	check(h.MinBodyRate >= 0, "http.min_body_rate", "0 or more", h.MinBodyRate)
	check(h.MaxConnections >= 1, "http.max_connections", "at least 1", h.MaxConnections)
	check(a.MaxBatch >= 1, "batcher.max_batch", "at least 1", a.MaxBatch)
	check(a.MaxBatchBytes >= 1, "batcher.max_batch_bytes", "at least 1", a.MaxBatchBytes)
	check(a.CommitsInFlight >= 1 && a.CommitsInFlight <= maxWriters, "batcher.commits_in_flight", "1 to 256", a.CommitsInFlight)
	check(a.MaxDelay >= 0, "batcher.max_delay_ms", "0 or more", a.MaxDelay)
	check(a.MaxQueue >= a.MaxBatch, "batcher.max_queue", "at least batcher.max_batch", a.MaxQueue)
	check(a.MaxQueueBytes >= int64(a.MaxBodyBytes), "batcher.max_queue_bytes", "at least http.max_body_bytes", a.MaxQueueBytes)
	check(a.MaxReadingBytes >= 2*int64(a.MaxBodyBytes), "http.max_reading_bytes", "at least twice http.max_body_bytes", a.MaxReadingBytes)
	check(a.StartDeadline > 0, "batcher.start_deadline_ms", "positive", a.StartDeadline)
	check(a.CommitTimeout > 0, "batcher.commit_timeout_ms", "positive", a.CommitTimeout)
	check(c.DrainTimeout > 0, "node.shutdown_timeout_ms", "positive", c.DrainTimeout)
	return errors.Join(faults...)
}
