package scenario_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"ankusa.dev/e2e/internal/harness"
)

// bin holds the product's programs for all tests of the package.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ankusa-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if bin, err = harness.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// long says whether the long forms run.
func long() bool { return os.Getenv("ANKUSA_LONG") != "" }

// scaled is short, or the long value in a long run.
func scaled[T any](short, longer T) T {
	if long() {
		return longer
	}
	return short
}
