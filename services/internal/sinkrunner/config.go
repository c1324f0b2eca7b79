// Package sinkrunner runs delivery attempts. A Runner leases them from the leading scheduler, reads each hook, delivers
// it through the sink of its type, and reports the outcome until the leader has acknowledged it.
package sinkrunner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// Config of a Runner.
type Config struct {
	// Name for people: host and process, at most 255 bytes. Default "sink-runner".
	Name string
	// Slots is how many attempts run at once. Default 256; 1 to 65536.
	Slots int
	// Drain is how long attempts may run on once the runner is told to stop. Default 20 s; 0 to 10 min.
	Drain time.Duration
	// Acknowledge is how long the runner waits, after that, for the leader to acknowledge its last outcomes. Default 5 s;
	// 0 to 1 min.
	Acknowledge time.Duration
	// Silence is how long a leader may say nothing before another is looked for: at least its lease, as it says something
	// whenever it renews. Default 5 s; 100 ms to 1 min, or 0 for ever, where the leader is of the same process and cannot
	// be stopped alone.
	Silence time.Duration
	// Read bounds one read of the store. Default 5 s; 10 ms to 1 min.
	Read time.Duration
}

// Default returns the configuration that each field's comment states.
func Default() Config {
	return Config{
		Name: "sink-runner", Slots: 256,
		Drain: 20 * time.Second, Acknowledge: 5 * time.Second, Silence: 5 * time.Second, Read: 5 * time.Second,
	}
}

// silence is Silence as a timer takes it.
func (c Config) silence() time.Duration {
	if c.Silence == 0 {
		return math.MaxInt64
	}
	return c.Silence
}

// Validate returns every fault at once.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, field, constraint string, got any) {
		if !ok {
			faults = append(faults, fmt.Errorf("runner.%s must be %s, got %v", field, constraint, got))
		}
	}
	check(len(c.Name) > 0 && len(c.Name) <= 255, "name", "1 to 255 bytes", len(c.Name))
	check(c.Slots >= 1 && c.Slots <= 65536, "slots", "1 to 65536", c.Slots)
	check(c.Drain >= 0 && c.Drain <= 10*time.Minute, "drain", "0 to 10m", c.Drain)
	check(c.Acknowledge >= 0 && c.Acknowledge <= time.Minute, "acknowledge", "0 to 1m", c.Acknowledge)
	check(c.Silence == 0 || c.Silence >= 100*time.Millisecond && c.Silence <= time.Minute, "silence", "0 or 100ms to 1m", c.Silence)
	check(c.Read >= 10*time.Millisecond && c.Read <= time.Minute, "read", "10ms to 1m", c.Read)
	return errors.Join(faults...)
}

// Store is what a runner reads of the store.
type Store interface {
	// Fetch reads epochs, rows and hooks in one snapshot; *store.Store has it.
	Fetch(ctx context.Context, rows []hook.Row) ([]store.Fetched, error)
}

// Sources is what a runner knows about sources; a sourcecache has it.
type Sources interface {
	// AtLeast returns a source, read anew where what is known is older than the revision. It fails with
	// store.ErrSourceNotFound only when the store has just said so.
	AtLeast(ctx context.Context, owner, name string, revision hook.Timestamp) (*source.Source, error)
}

// Deps of a Runner.
type Deps struct {
	// Leader reaches the leading scheduler; it stays the caller's to close.
	Leader  grpc.ClientConnInterface
	Store   Store
	Sources Sources
	// Sinks by type. Run closes them when it ends.
	Sinks sink.Set
	Log   *zap.Logger
	// Metrics takes the runner's series.
	Metrics prometheus.Registerer
}
