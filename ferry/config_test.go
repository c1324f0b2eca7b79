package ferry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"ankusa.dev/ferry"
)

func faults(t *testing.T, err error) []string {
	t.Helper()
	var fields []string
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("want joined faults, got %v", err)
	}
	for _, e := range joined.Unwrap() {
		var fault *ferry.ConfigError
		if errors.As(e, &fault) {
			fields = append(fields, fault.Field)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

func TestTheDefaultsAreValidAndAsDocumented(t *testing.T) {
	c := ferry.Default[int]()
	noError(t, c.Validate())
	equal(t, "MaxBatch", 256, c.MaxBatch)
	equal(t, "MaxInFlight", 1, c.MaxInFlight)
	equal(t, "MaxQueue", 10_000, c.MaxQueue)
	equal(t, "MaxWait", 0, c.MaxWait)
}

func TestValidateReportsEveryFaultAtOnce(t *testing.T) {
	all := ferry.Config[int]{
		MaxBatchWeight: -1, MaxWait: -time.Second, MaxQueueWeight: -1, MaxQueuePerGroup: -1, MaxQueueWeightPerGroup: -1,
	}
	equal(t, "fields", []string{
		"MaxBatch", "MaxBatchWeight", "MaxInFlight", "MaxQueue", "MaxQueuePerGroup", "MaxQueueWeight",
		"MaxQueueWeightPerGroup", "MaxWait",
	}, faults(t, all.Validate()))

	needs := ferry.Default[int]()
	needs.MaxBatchWeight, needs.MaxQueueWeight, needs.MaxQueuePerGroup, needs.MaxQueueWeightPerGroup = 1, 1, 1, 1
	equal(t, "fields", []string{
		"MaxBatchWeight", "MaxQueuePerGroup", "MaxQueueWeight", "MaxQueueWeightPerGroup",
	}, faults(t, needs.Validate()))

	narrow := ferry.Default[int]()
	narrow.MaxQueue = narrow.MaxBatch - 1
	equal(t, "fields", []string{"MaxQueue"}, faults(t, narrow.Validate()))
}

func TestNewRefusesAFaultyConfigurationAndAMissingRun(t *testing.T) {
	noLeak(t)
	_, err := ferry.New[int, int](ferry.Config[int]{}, nil)
	equal(t, "fields", []string{"MaxBatch", "MaxInFlight", "MaxQueue", "run"}, faults(t, flat{err}))
}

// flat unwraps joins of joins.
type flat struct{ error }

func (f flat) Unwrap() []error {
	var all []error
	var walk func(error)
	walk = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
			return
		}
		all = append(all, err)
	}
	walk(f.error)
	return all
}

func FuzzConfig(f *testing.F) {
	f.Add(1, 1, 1, int64(0), int64(0), 0, int64(0), int64(0))
	f.Add(0, -1, 5, int64(-1), int64(9), 3, int64(1), int64(-5))
	f.Fuzz(func(t *testing.T, batch, slots, queue int, batchWeight, queueWeight int64, group int, groupWeight, weight int64) {
		c := ferry.Config[int]{
			MaxBatch: batch, MaxInFlight: slots % 64, MaxQueue: queue, MaxBatchWeight: batchWeight,
			MaxQueueWeight: queueWeight, MaxQueuePerGroup: group, MaxQueueWeightPerGroup: groupWeight,
			Weight: func(int) int64 { return weight }, Group: func(int) string { return "g" },
		}
		b, err := ferry.New(c, echo())
		if (err == nil) != (c.Validate() == nil) {
			t.Fatalf("New says %v, Validate %v", err, c.Validate())
		}
		if err != nil {
			return
		}
		out, err := b.Do(context.Background(), 7) // alone, so no bound keeps it out
		if out != 7 || err != nil {
			t.Fatalf("got %d, %v", out, err)
		}
		mustClose(t, b)
	})
}
