package tikvmock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// window is how far ahead of the clock timestamps are reserved on disk.
const window = 3 * time.Second

// logicalBits is the room for timestamps within a millisecond.
const logicalBits = 18

// state is what the cluster remembers beside its data. What a caller was told is on disk before.
type state struct {
	path string // empty: nothing is kept
	mu   sync.Mutex
	kept kept
	last struct{ physical, logical int64 } // timestamp handed out last
}

type kept struct {
	ClusterID uint64
	Reserved  int64 // no timestamp of this millisecond or a later one has been handed out
	Splits    []split
	TxnSafe   uint64
	GCSafe    uint64
	Barriers  map[string]uint64 // service safe points, without their expiry
	Etcd      map[string]string
	Revision  int64
}

// split says that a region was cut in two. Cut again in this order, a new cluster has the same regions, and the
// clients' caches stay right.
type split struct {
	Region, New, Peer uint64
	Key               []byte // in TiKV's encoding
}

func newState(path string) *state {
	return &state{path: path, kept: kept{ClusterID: rand.Uint64N(1<<62) + 1, Revision: 1,
		Barriers: map[string]uint64{}, Etcd: map[string]string{}}}
}

func (s *state) load() error {
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s.save()
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &s.kept); err != nil {
		return fmt.Errorf("read %s: %w", s.path, err)
	}
	s.last.physical = s.kept.Reserved
	return nil
}

// update changes what is kept, and returns when that is on disk. change must leave all as it was if it fails.
func (s *state) update(change func(*kept) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := change(&s.kept); err != nil {
		return err
	}
	return s.save()
}

func (s *state) view(look func(*kept)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look(&s.kept)
}

func (s *state) save() error {
	if s.path == "" {
		return nil
	}
	b, err := json.Marshal(&s.kept)
	if err != nil {
		return err
	}
	if err := writeSynced(s.path+".new", b); err != nil {
		return err
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.path))
}

func writeSynced(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// timestamps hands out n timestamps that follow each other, and returns the last. They increase also over a restart
// and a clock that is set back.
func (s *state) timestamps(n int64) (physical, logical int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.last
	if now := time.Now().UnixMilli(); now > l.physical {
		l.physical, l.logical = now, 0
	}
	if l.logical+n >= 1<<logicalBits {
		l.physical, l.logical = l.physical+1, 0
	}
	l.logical += n
	if l.physical >= s.kept.Reserved {
		s.kept.Reserved = l.physical + window.Milliseconds()
		if err := s.save(); err != nil {
			return 0, 0, err
		}
	}
	return l.physical, l.logical, nil
}

func (s *state) now() (uint64, error) {
	physical, logical, err := s.timestamps(1)
	return uint64(physical)<<logicalBits | uint64(logical), err
}
