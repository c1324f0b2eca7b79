package telemetry

import (
	"io"
	"runtime"
	"sync"

	"go.uber.org/zap/zapcore"
)

// maxPending bounds what waits while a line is written; past it, whoever logs waits.
const maxPending = 1 << 20

// Lines writes lines of a log one after another. What is logged while a line waits for its turn goes out with it, in one
// call of the writer: a line for each attempt is to cost little when there are thousands a second. None waits for others
// that may never come, and whoever logs waits only for a writer that is far behind. A crash loses what was logged within
// the last moment and is not written yet. It is safe for concurrent use.
type Lines struct {
	w io.Writer

	mu      sync.Mutex
	moved   sync.Cond // something was written
	writing bool
	pending []byte
	spare   []byte
	// taken and written count lines.
	taken, written uint64
	err            error // of the writer, until somebody is told
}

var _ zapcore.WriteSyncer = (*Lines)(nil)

// NewLines makes a log's output of w.
func NewLines(w io.Writer) *Lines {
	l := &Lines{w: w}
	l.moved.L = &l.mu
	return l
}

// Write takes a line over, to be written at once; Sync waits for that. The line is taken whatever the error: it is the
// writer's last one, which nobody was told of.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.writing && len(l.pending) > maxPending {
		l.moved.Wait()
	}
	l.pending = append(l.pending, line...)
	l.taken++
	if !l.writing {
		l.writing = true
		go l.writeOut()
	}
	return len(line), l.fault()
}

func (l *Lines) fault() error {
	err := l.err
	l.err = nil
	return err
}

// writeOut writes until nothing is pending.
func (l *Lines) writeOut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) > 0 {
		l.mu.Unlock()
		runtime.Gosched() // whoever is about to log goes first, where no processor is free for it
		l.mu.Lock()
		out, upTo := l.pending, l.taken
		l.pending, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		_, err := l.w.Write(out)
		l.mu.Lock()
		if cap(out) <= maxPending {
			l.spare = out
		}
		if l.written = upTo; err != nil {
			l.err = err
		}
		l.moved.Broadcast()
	}
	l.writing = false
}

// Sync returns when everything has been written that was logged before it, and fails with the writer's last error, which
// nobody was told of.
func (l *Lines) Sync() error {
	l.mu.Lock()
	for upTo := l.taken; l.written < upTo; {
		l.moved.Wait()
	}
	err := l.fault()
	l.mu.Unlock()
	if s, ok := l.w.(zapcore.WriteSyncer); ok && err == nil {
		return s.Sync()
	}
	return err
}
