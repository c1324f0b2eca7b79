package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Log is an append-only file of entries, one JSON document a line. It is safe for concurrent use.
type Log[E any] struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

// Create starts a new log; a file of that name must not exist yet.
func Create[E any](path string) (*Log[E], error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	return &Log[E]{file: f}, nil
}

// Append writes one entry. It is in the file when Append returns; a failed write is reported by Close.
func (l *Log[E]) Append(e E) {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if l.err == nil {
		l.err = err
	}
}

// Close returns the first error that any Append met.
func (l *Log[E]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.err, l.file.Close())
}

// Read returns all entries of a log, in the order in which they were appended.
func Read[E any](path string) ([]E, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	defer func() { _ = f.Close() }()
	var entries []E
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var e E
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, fmt.Errorf("read log %s, entry %d: %w", path, len(entries), err)
		}
		entries = append(entries, e)
	}
}
