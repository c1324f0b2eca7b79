package local

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a file system whose log syncs are counted, and can be slow, held or broken.
type disk struct {
	vfs.FS
	latency time.Duration
	syncs   atomic.Int64
	broken  atomic.Pointer[error]

	mu      sync.Mutex
	gate    chan struct{} // syncs wait until it is closed; nil for none
	waiting chan struct{} // closed by the first that waits
}

func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	return d.wrap(name, f), err
}

func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, category)
	return d.wrap(newname, f), err
}

func (d *disk) wrap(name string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(name, ".log") {
		return f
	}
	return &logFile{f, d}
}

func (d *disk) hold() (<-chan struct{}, func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.gate, d.waiting = gate, make(chan struct{})
	return d.waiting, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.gate == gate {
			d.gate = nil
			close(gate)
		}
	}
}

func (d *disk) beforeSync() error {
	d.syncs.Add(1)
	if d.latency > 0 {
		<-time.After(d.latency)
	}
	d.mu.Lock()
	gate := d.gate
	if gate != nil && d.waiting != nil {
		close(d.waiting)
		d.waiting = nil
	}
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err := d.broken.Load(); err != nil {
		return *err
	}
	return nil
}

type logFile struct {
	vfs.File
	d *disk
}

func (f *logFile) Sync() error {
	if err := f.d.beforeSync(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *logFile) SyncData() error {
	if err := f.d.beforeSync(); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *logFile) SyncTo(length int64) (bool, error) {
	if err := f.d.beforeSync(); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
