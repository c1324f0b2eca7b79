package ferry

import (
	"errors"
	"fmt"
	"time"

	"ankusa.dev/ferry/internal/queue"
)

// Config of a Batcher. The functions are called on the caller's goroutine
// before admission, must be safe for concurrent use, and answer the same for
// the same input; a panic in one is the caller's alone.
type Config[In any] struct {
	// MaxBatch is the most inputs in a batch: 256 by default, at least 1.
	MaxBatch int
	// MaxBatchWeight is the most weight in a batch; 0, the default, is no limit.
	// Needs Weight.
	MaxBatchWeight int64
	// MaxWait is the longest that a free slot lets an input wait for company. 0,
	// the default: it does not.
	MaxWait time.Duration
	// MaxInFlight is the number of batch slots: 1 by default, at least 1.
	MaxInFlight int

	// MaxQueue is the most inputs that are buffered or in flight: 10,000 by
	// default, at least MaxBatch.
	MaxQueue int
	// MaxQueueWeight is the most weight that is buffered or in flight; 0, the
	// default, is no limit. Needs Weight.
	MaxQueueWeight int64
	// MaxQueuePerGroup is MaxQueue for each group alone; 0, the default, is no
	// limit. Needs Group.
	MaxQueuePerGroup int
	// MaxQueueWeightPerGroup is MaxQueueWeight for each group alone; 0, the
	// default, is no limit. Needs Weight and Group.
	MaxQueueWeightPerGroup int64

	// Weight of an input, such as its bytes. Less than 0 counts as 0. Optional.
	Weight func(In) int64
	// Lane of an input; false for one that needs no order. Optional.
	Lane func(In) (key string, ok bool)
	// Group of an input, such as its tenant. Optional.
	Group func(In) string
	// Bin of an input: inputs of different bins share no batch, and bins are
	// served by turns. Optional.
	Bin func(In) string

	// Metrics is told what happens. Optional.
	Metrics Metrics
}

// Default returns the configuration that each field's comment states.
func Default[In any]() Config[In] {
	return Config[In]{MaxBatch: 256, MaxInFlight: 1, MaxQueue: 10_000}
}

// Validate returns every fault at once, each as a *ConfigError, or nil.
func (c Config[In]) Validate() error {
	var faults []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			faults = append(faults, &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	check(c.MaxBatch >= 1, "MaxBatch", "is %d, must be at least 1", c.MaxBatch)
	check(c.MaxInFlight >= 1, "MaxInFlight", "is %d, must be at least 1", c.MaxInFlight)
	check(c.MaxWait >= 0, "MaxWait", "is %s, must not be negative", c.MaxWait)
	check(c.MaxQueue >= max(c.MaxBatch, 1), "MaxQueue", "is %d, must be at least 1 and MaxBatch", c.MaxQueue)
	for _, limit := range []struct {
		field                   string
		value                   int64
		needsWeight, needsGroup bool
	}{
		{"MaxBatchWeight", c.MaxBatchWeight, true, false},
		{"MaxQueueWeight", c.MaxQueueWeight, true, false},
		{"MaxQueuePerGroup", int64(c.MaxQueuePerGroup), false, true},
		{"MaxQueueWeightPerGroup", c.MaxQueueWeightPerGroup, true, true},
	} {
		check(limit.value >= 0, limit.field, "is %d, must not be negative", limit.value)
		check(limit.value == 0 || !limit.needsWeight || c.Weight != nil, limit.field, "needs Weight")
		check(limit.value == 0 || !limit.needsGroup || c.Group != nil, limit.field, "needs Group")
	}
	return errors.Join(faults...)
}

func (c Config[In]) limits() queue.Limits {
	return queue.Limits{
		Batch: c.MaxBatch, BatchWeight: c.MaxBatchWeight, Wait: c.MaxWait,
		Held: c.MaxQueue, HeldWeight: c.MaxQueueWeight,
		Group: c.MaxQueuePerGroup, GroupWeight: c.MaxQueueWeightPerGroup,
	}
}

func (c Config[In]) kinds() queue.Kinds {
	return queue.Kinds{Groups: c.Group != nil, Lanes: c.Lane != nil, Bins: c.Bin != nil}
}

// keys asks the functions about in.
func (c *Config[In]) keys(in In) (k queue.Keys, weight int64) {
	if c.Weight != nil {
		weight = max(0, c.Weight(in))
	}
	if c.Lane != nil {
		k.Lane, k.HasLane = c.Lane(in)
	}
	if c.Group != nil {
		k.Group = c.Group(in)
	}
	if c.Bin != nil {
		k.Bin = c.Bin(in)
	}
	return k, weight
}
