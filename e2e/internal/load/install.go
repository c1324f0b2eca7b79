package load

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// install runs npm once per lock file, also when several test binaries start at the same time.
func install(ctx context.Context, dir string) error {
	lock, err := os.OpenFile(filepath.Join(dir, "package-lock.json"), os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("github: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("github: lock %s: %w", lock.Name(), err)
	}
	if current(dir) {
		return nil
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("github: npm ci: %w: %s", err, out)
	}
	return nil
}

// current says whether the installed tree is at least as new as the lock file that it was made from.
func current(dir string) bool {
	want, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return false
	}
	have, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return err == nil && !have.ModTime().Before(want.ModTime())
}
