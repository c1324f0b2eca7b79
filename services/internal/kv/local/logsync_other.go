//go:build !linux

package local

import "github.com/cockroachdb/pebble/v2/vfs"

// asyncLogs is for Linux.
func asyncLogs(fs vfs.FS) (logs vfs.FS, free func() error) {
	return fs, func() error { return nil }
}
