package local

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// bloomBits per key keep lookups of keys that do not exist off the disk, one in a hundred excepted.
const bloomBits = 10

// A lookup reads one block; an index of one block per file spares it a second index lookup.
const (
	blockBytes      = 16 << 10
	indexBlockBytes = 256 << 10
	firstFileBytes  = 4 << 20
	maxFileBytes    = 64 << 20
)

// Open opens the store in o.Dir, or makes one. A directory that another store has open is refused.
func Open(o Options, log *zap.Logger) (*Store, error) { return openAt(o, log, machineClock()) }

// OpenMem opens an empty store in memory. It works within a testing/synctest bubble, on the bubble's clock.
func OpenMem(log *zap.Logger) (*Store, error) {
	o := Default()
	o.Dir, o.FS, o.CacheBytes, o.MemTableBytes = "mem", vfs.NewMem(), 1<<20, 4<<20
	return Open(o, log)
}

func openAt(o Options, log *zap.Logger, read source) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	fs := o.FS
	if fs == nil {
		fs = vfs.Default
	}
	if err := makeDir(fs, o.Dir); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", o.Dir, err)
	}
	lock, err := pebble.LockDirectory(o.Dir, fs)
	if err != nil {
		return nil, fmt.Errorf("directory %s is in use by another store: %w", o.Dir, err)
	}
	s, err := openLocked(o, log, read, lock)
	if err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, errors.Join(err, lock.Close()))
	}
	s.guard = &guard{fs: fs, dir: o.Dir, min: o.MinFreeBytes, now: time.Now}
	// The engine holds a reference of its own to the lock, until it is closed.
	if err := lock.Close(); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", o.Dir, errors.Join(err, s.Close()))
	}
	return s, nil
}

// makeDir makes the directory and those above it, and makes their names durable.
func makeDir(fs vfs.FS, dir string) error {
	parent := fs.PathDir(dir)
	if parent == dir {
		return nil
	}
	if _, err := fs.Stat(parent); errors.Is(err, os.ErrNotExist) {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d, err := fs.OpenDir(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func openLocked(o Options, log *zap.Logger, read source, lock *pebble.Lock) (*Store, error) {
	db, err := pebble.Open(o.Dir, engineOptions(o, log, lock))
	if err != nil {
		return nil, err
	}
	mark, err := readMark(db)
	if err == nil && mark == 0 {
		err = leaveFirstLog(db)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	awaitWall(read, mark)
	s := &Store{
		opts:    o,
		log:     log,
		db:      db,
		idle:    settled(),
		clock:   newClock(read, mark),
		mark:    mark,
		recent:  newConflicts(maxConflicts),
		states:  make(map[*state]struct{}),
		updates: newReaderList(),
		queue:   newSyncQueue(),
		synced:  make(chan struct{}),
	}
	s.newest, s.written, s.marked = s.idle, s.idle, s.idle
	s.durable = s.freeze()
	s.durableMark.Store(uint64(mark))
	go s.syncLoop()
	return s, nil
}

// leaveFirstLog has a new store begin a second log. The engine writes the first in an old format, in which damage in the
// middle looks like the end that a crash leaves, so that everything behind it would be lost without a word.
func leaveFirstLog(db *pebble.DB) error {
	if err := db.Flush(); err != nil {
		return fmt.Errorf("begin a log: %w", err)
	}
	return nil
}

func engineOptions(o Options, log *zap.Logger, lock *pebble.Lock) *pebble.Options {
	p := &pebble.Options{
		FS:                          o.FS,
		Lock:                        lock,
		Logger:                      engineLogger{log},
		EventListener:               engineEvents(log),
		CacheSize:                   o.CacheBytes + 2*o.MemTableBytes, // the engine takes its tables' memory out of it
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		L0StopWritesThreshold:       1000,
		FlushDelayDeleteRange:       10 * time.Second,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		CompactionConcurrencyRange:  oneCompaction,
	}
	p.Experimental.CompactionScheduler = &compactions{}
	for i := range p.Levels {
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		p.Levels[i].BlockSize = blockBytes
		p.Levels[i].IndexBlockSize = indexBlockBytes
		p.TargetFileSizes[i] = min(int64(firstFileBytes)<<i, maxFileBytes)
	}
	return p
}

// readMark returns the clock's mark, zero in a new store.
func readMark(db *pebble.DB) (kv.Timestamp, error) {
	v, closer, err := db.Get(markKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the clock's mark: %w", err)
	}
	if len(v) != 8 {
		return 0, errors.Join(fmt.Errorf("the clock's mark has %d bytes", len(v)), closer.Close())
	}
	return kv.Timestamp(binary.BigEndian.Uint64(v)), closer.Close()
}
