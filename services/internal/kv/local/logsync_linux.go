package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// asyncLogs has the kernel sync the engine's logs while nobody waits for it in a system call. A thread that does keeps
// its processor from the runtime, which takes it back only by looking every few microseconds: with some hundred commits
// a second that alone is a twentieth of the processor time under load. The kernel's asynchronous I/O (io_submit, with
// IOCB_CMD_FDSYNC) does the same as fdatasync, and tells its end through a descriptor that the runtime's poller watches.
// Where the kernel, the file system or a sandbox does not have it, logs are synced as all other files are. The second
// result frees what the logs have used; all of them must be closed.
func asyncLogs(fs vfs.FS) (logs vfs.FS, free func() error) {
	w := &walFS{FS: fs}
	return w, w.free
}

// walFS opens logs as walFile.
type walFS struct {
	vfs.FS
	mu   sync.Mutex
	idle []*aio // of logs that are closed: it takes the kernel 30 ms to end one
}

// Unwrap implements vfs.FS.
func (l *walFS) Unwrap() vfs.FS { return l.FS }

// Create implements vfs.FS.
func (l *walFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, c)
	return l.asLog(name, f), err
}

// ReuseForWrite implements vfs.FS.
func (l *walFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.ReuseForWrite(old, name, c)
	return l.asLog(name, f), err
}

func (l *walFS) asLog(name string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(name, ".log") {
		return f
	}
	return &walFile{File: f, fs: l}
}

func (l *walFS) take() (*aio, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle)
	if n == 0 {
		return newAIO()
	}
	a := l.idle[n-1]
	l.idle = l.idle[:n-1]
	return a, nil
}

func (l *walFS) give(a *aio) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, a)
}

func (l *walFS) free() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := make([]error, len(l.idle))
	for i, a := range l.idle {
		errs[i] = a.close()
	}
	l.idle = nil
	return errors.Join(errs...)
}

// walFile is one log.
type walFile struct {
	vfs.File
	fs    *walFS
	mu    sync.Mutex
	aio   *aio
	plain bool // this file, or this process, cannot do without a thread
}

// SyncData implements vfs.File. It returns nil only when all that was written before the call is durable.
func (f *walFile) SyncData() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.aio == nil && !f.plain {
		var err error
		f.aio, err = f.fs.take()
		f.plain = err != nil
	}
	if f.plain {
		return f.File.SyncData()
	}
	err := f.aio.syncData(f.Fd())
	if err == nil {
		return nil
	}
	// Nobody may use it again: a later request must not end by this one's end.
	end := f.aio.close()
	f.aio, f.plain = nil, true
	if errors.Is(err, errNotBegun) {
		return f.File.SyncData()
	}
	return errors.Join(err, end)
}

// Close implements vfs.File.
func (f *walFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.aio != nil {
		f.fs.give(f.aio)
	}
	f.aio, f.plain = nil, true
	return f.File.Close()
}

// errNotBegun: the kernel has not taken the request, so that it can be made in another way.
var errNotBegun = errors.New("asynchronous sync not begun")

// aio makes one asynchronous request at a time. Not safe for concurrent use.
type aio struct {
	context uintptr
	ended   *os.File // an eventfd
	request iocb
	list    [1]*iocb
	event   ioEvent
}

// iocb is struct iocb of linux/aio_abi.h, of which fdatasync needs little.
type iocb struct {
	_               [2]uint64
	opcode          uint16
	_               int16
	fd              uint32
	_               [4]uint64
	flags, resultFD uint32
}

// ioEvent is struct io_event of linux/aio_abi.h.
type ioEvent struct {
	_      [2]uint64
	result int64
	_      int64
}

// Of linux/aio_abi.h.
const (
	iocbFdatasync    = 3
	iocbTellResultFD = 1
)

func newAIO() (*aio, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	a := &aio{ended: os.NewFile(uintptr(fd), "eventfd")}
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&a.context)), 0); e != 0 {
		return nil, errors.Join(fmt.Errorf("io_setup: %w", e), a.ended.Close())
	}
	a.request = iocb{opcode: iocbFdatasync, flags: iocbTellResultFD, resultFD: uint32(fd)}
	a.list[0] = &a.request
	return a, nil
}

// syncData fails with errNotBegun where it has done nothing.
func (a *aio) syncData(fd uintptr) error {
	a.request.fd = uint32(fd)
	if _, _, e := unix.RawSyscall(unix.SYS_IO_SUBMIT, a.context, 1, uintptr(unsafe.Pointer(&a.list))); e != 0 {
		return fmt.Errorf("%w: io_submit: %w", errNotBegun, e)
	}
	var count [8]byte
	if _, err := a.ended.Read(count[:]); err != nil {
		return fmt.Errorf("wait for the end of fdatasync: %w", err)
	}
	return a.result()
}

// result takes the result of a request that has ended.
func (a *aio) result() error {
	for {
		_, _, e := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, 1, 1, uintptr(unsafe.Pointer(&a.event)), 0, 0)
		switch {
		case e == unix.EINTR:
		case e != 0:
			return fmt.Errorf("io_getevents: %w", e)
		default:
			return a.event.fault()
		}
	}
}

// fault is what the request failed with.
func (v *ioEvent) fault() error {
	if v.result < 0 {
		return fmt.Errorf("fdatasync: %w", unix.Errno(-v.result))
	}
	return nil
}

func (a *aio) close() error {
	var err error
	if _, _, e := unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0); e != 0 {
		err = fmt.Errorf("io_destroy: %w", e)
	}
	return errors.Join(err, a.ended.Close())
}
