package seed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/store"
)

// Template is a store that is filled once and copied for every repetition.
type Template struct {
	// Name is unique for what the template holds.
	Name string
	Fill func(context.Context, *Seeder) error
	// Restless leaves the store as the writes left it. Others are given the time to put themselves in order, so that
	// this work does not fall into a measurement.
	Restless bool
}

// Library keeps templates on the disk for as long as it is open.
type Library struct {
	// Dir takes the templates and their copies.
	Dir string
	// Options of the stores, but for the directory.
	Options local.Options
	// Quiet is how long the files of a new template must not change before it counts as in order.
	Quiet time.Duration
	// Log takes progress.
	Log io.Writer

	made   map[string]bool
	copies int
}

// Open opens a fresh copy of a template, which remove deletes once the store is closed.
func (l *Library) Open(ctx context.Context, t Template) (port *local.Store, remove func() error, err error) {
	from := filepath.Join(l.Dir, t.Name)
	if err := l.make(ctx, t, from); err != nil {
		return nil, nil, fmt.Errorf("make template %s: %w", t.Name, err)
	}
	l.copies++
	to := filepath.Join(l.Dir, fmt.Sprintf("%s-%03d", t.Name, l.copies))
	if err := duplicate(from, to); err != nil {
		return nil, nil, fmt.Errorf("copy template %s: %w", t.Name, err)
	}
	port, err = l.open(to)
	return port, func() error { return os.RemoveAll(to) }, err
}

func (l *Library) open(dir string) (*local.Store, error) {
	o := l.Options
	o.Dir = dir
	return local.Open(o, zap.NewNop())
}

func (l *Library) make(ctx context.Context, t Template, dir string) error {
	if l.made[t.Name] {
		return nil
	}
	began := time.Now()
	if err := l.using(dir, func(port *local.Store) error { return fill(ctx, port, t) }); err != nil {
		return err
	}
	// What still stands in the log goes into tables when the store is opened again.
	err := l.using(dir, func(*local.Store) error {
		if t.Restless {
			return nil
		}
		return l.rest(ctx, dir)
	})
	if err != nil {
		return err
	}
	if l.made == nil {
		l.made = make(map[string]bool)
	}
	l.made[t.Name] = true
	size, err := weigh(dir)
	_, _ = fmt.Fprintf(l.Log, "  template %s: %d MB in %.1f s\n", t.Name, size>>20, time.Since(began).Seconds())
	return err
}

func (l *Library) using(dir string, do func(*local.Store) error) error {
	port, err := l.open(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(port), port.Close())
}

func fill(ctx context.Context, port *local.Store, t Template) error {
	s, err := store.Open(ctx, port, store.Options{})
	if err != nil {
		return err
	}
	seeder, err := New(ctx, s)
	if err != nil {
		return err
	}
	return errors.Join(t.Fill(ctx, seeder), seeder.Close(ctx))
}

const (
	restLook = 100 * time.Millisecond
	restMost = time.Minute
)

// rest waits until the store's files have not changed for a while.
func (l *Library) rest(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, restMost)
	defer cancel()
	last, since := int64(-1), time.Now()
	ticker := time.NewTicker(restLook)
	defer ticker.Stop()
	for time.Since(since) < l.Quiet {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the store to rest: %w", ctx.Err())
		}
		size, err := weigh(dir)
		if err != nil {
			return err
		}
		if size != last {
			last, since = size, time.Now()
		}
	}
	return nil
}

// weigh is the bytes of a directory's files. Files may go while it looks.
func weigh(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// duplicate copies a closed store. Tables are never changed once they are written, so the copy shares them; all else is
// copied.
func duplicate(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		a, b := filepath.Join(from, f.Name()), filepath.Join(to, f.Name())
		switch filepath.Ext(f.Name()) {
		case ".sst", ".blob":
			err = os.Link(a, b)
		default:
			err = copyFile(a, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
