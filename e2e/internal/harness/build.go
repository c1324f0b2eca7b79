// Package harness runs the product's processes: it builds the binaries, writes their files, starts, kills and restarts
// them by process id, and keeps what they said.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// mains are the programs that a deployment consists of, and the store that stands for TiKV in tests.
var mains = []string{"ankusa", "ingest", "scheduler", "sinkrunner", "gateway", "tikvmock"}

// Build compiles the named programs into dir and returns dir; without names, all. Where ANKUSA_BIN names a directory,
// nothing is built and that is returned.
func Build(ctx context.Context, dir string, names ...string) (string, error) {
	if bin := os.Getenv("ANKUSA_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		names = mains
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./services/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the product: %w\n%s", err, out)
	}
	return dir, nil
}

// Root is the directory of the workspace.
func Root() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return "", errors.New("the workspace cannot be found")
	}
	root := filepath.Join(filepath.Dir(file), "..", "..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.work")); err != nil {
		return "", fmt.Errorf("the workspace cannot be found: %w", err)
	}
	return root, nil
}
