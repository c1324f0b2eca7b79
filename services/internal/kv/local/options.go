package local

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options configure the embedded store.
type Options struct {
	// Dir is the directory of the store; it is created if need be, and held exclusively. No default.
	Dir string
	// CacheBytes is the size of the block cache. Default 64 MiB, at least 1 MiB.
	CacheBytes int64
	// MemTableBytes is the size of one in-memory table, which also bounds a log file. Default 64 MiB, 1 MiB to 1 GiB.
	MemTableBytes int64
	// MinFreeBytes refuses writes when the disk has less free space. It must leave room for what compactions need and
	// for what other programs write within a second, since a log that cannot be written ends the process. Default
	// 1 GiB; zero switches the guard off.
	MinFreeBytes int64
	// MaxEntryBytes bounds key and value of one write. Default 6 MiB, at least 1 KiB.
	MaxEntryBytes int
	// MaxTransactionBytes bounds keys and values of one transaction. Default 100 MiB, MaxEntryBytes to 1 GiB.
	MaxTransactionBytes int
	// FS is the file system, for tests. Default nil: the operating system's.
	FS vfs.FS
}

// Default is a valid configuration but for the directory.
func Default() Options {
	return Options{
		CacheBytes:          64 << 20,
		MemTableBytes:       64 << 20,
		MinFreeBytes:        1 << 30,
		MaxEntryBytes:       6 << 20,
		MaxTransactionBytes: 100 << 20,
	}
}

// Validate returns every fault at once, each under its key.
func (o Options) Validate() error {
	var faults []error
	check := func(ok bool, key, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("store.local.%s must be %s", key, want))
		}
	}
	check(o.Dir != "", "dir", "set")
	check(o.CacheBytes >= 1<<20, "cache_bytes", "at least 1 MiB")
	check(o.MemTableBytes >= 1<<20 && o.MemTableBytes <= 1<<30, "mem_table_bytes", "within 1 MiB and 1 GiB")
	check(o.MinFreeBytes >= 0, "min_free_bytes", "zero or more")
	check(o.MaxEntryBytes >= 1<<10, "max_entry_bytes", "at least 1 KiB")
	check(o.MaxTransactionBytes >= o.MaxEntryBytes && o.MaxTransactionBytes <= 1<<30,
		"max_transaction_bytes", "within max_entry_bytes and 1 GiB")
	return errors.Join(faults...)
}
