// Package store holds every durable operation of the system: the layout of keys, the codecs of values, and one function
// per transaction. Above it nobody sees a key; below it nobody knows what a hook is.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

// CommitBound is the longest time from the start of a transaction that writes rows to its commit. So a snapshot that is
// Finality old can gain no row any more.
const CommitBound = 5 * time.Second

// Finality is the age from which on a snapshot is final: twice the bound of commits.
const Finality = 2 * CommitBound

// DefaultPartitions is the number of partitions of a cluster that names none.
const DefaultPartitions = 16

// attempts bounds the tries of a transaction that conflicts.
const attempts = 8

var (
	// ErrOtherCluster: the store was created with other settings that are fixed for its life.
	ErrOtherCluster = errors.New("store was created differently")
)

// Options of a store. Partitions is fixed when the cluster is created.
type Options struct {
	Partitions int // 1 to MaxPartitions; 0 means DefaultPartitions for a new cluster, and takes an old one's
	// Unsplit is told why a new cluster could not be split at its partitions; nil ignores it. Such a cluster is sound:
	// its store splits by itself once a range has grown or is hot enough, and nobody splits it again.
	Unsplit func(error)
}

// Store is safe for concurrent use. It keeps no state but the port and the cluster's settings.
type Store struct {
	kv         kv.Store
	partitions int
	cluster    [16]byte
}

// Open reads the cluster's record, or creates it. It fails with ErrOtherCluster where the record says otherwise.
func Open(ctx context.Context, port kv.Store, o Options) (*Store, error) {
	if o.Partitions < 0 || o.Partitions > MaxPartitions {
		return nil, fmt.Errorf("store.partitions must be 1 to %d, got %d", MaxPartitions, o.Partitions)
	}
	s, created := &Store{kv: port}, false
	_, err := kv.Retry(ctx, port, kv.UpdateOptions{}, attempts, func(t kv.Txn) (err error) {
		created, err = s.join(ctx, t, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if o.Partitions != 0 && o.Partitions != s.partitions {
		return nil, fmt.Errorf("open store: %w: store.partitions is %d, got %d", ErrOtherCluster, s.partitions, o.Partitions)
	}
	if !created {
		return s, nil
	}
	if err := s.split(ctx); err != nil && o.Unsplit != nil {
		o.Unsplit(err)
	}
	return s, nil
}

// splitTimeout bounds the split of a new cluster, which an opening process waits for and does without.
const splitTimeout = 30 * time.Second

// split parts a new store at the borders of the partitions, where it can be: the first hooks meet as many machines as
// the later ones.
func (s *Store) split(ctx context.Context) error {
	splitter, ok := kv.AsSplitter(s.kv)
	if !ok {
		return nil
	}
	borders := make([][]byte, s.partitions)
	for p := range borders {
		borders[p] = []byte{partitionSpace + byte(p)}
	}
	ctx, cancel := context.WithTimeout(ctx, splitTimeout)
	defer cancel()
	if err := splitter.Split(ctx, borders); err != nil {
		return fmt.Errorf("split store at %d partitions: %w", s.partitions, err)
	}
	return nil
}

// join reads the cluster's record, or creates it; the put of two creators conflicts, and the second reads the first's.
func (s *Store) join(ctx context.Context, t kv.Txn, o Options) (created bool, err error) {
	b, err := t.Get(ctx, clusterRecordKey())
	if err == nil {
		return false, s.readCluster(b)
	}
	if !errors.Is(err, kv.ErrNotFound) {
		return false, err
	}
	if s.partitions = o.Partitions; s.partitions == 0 {
		s.partitions = DefaultPartitions
	}
	rand.Read(s.cluster[:])
	return true, t.Put(clusterRecordKey(), newValue(32).uint(2, uint64(s.partitions)).bytes(3, s.cluster[:]))
}

func (s *Store) readCluster(b []byte) error {
	return decode("cluster record", b, func(f field) error {
		switch f.num {
		case 2:
			s.partitions = int(f.v)
		case 3:
			copy(s.cluster[:], f.b)
		}
		return nil
	})
}

// Partitions is the number of partitions.
func (s *Store) Partitions() int { return s.partitions }

// Partition holds the hooks of a tenant; spread numbers the parts of a source that is spread over several, else 0.
func (s *Store) Partition(tenant string, spread uint32) uint8 {
	h := hash(tenant, 0) + spread*0x9e3779b1
	return uint8(h % uint32(s.partitions))
}

// Now is a fresh timestamp of the store's clock.
func (s *Store) Now(ctx context.Context) (hook.Timestamp, error) { return s.kv.Now(ctx) }

// Ready proves with a synced write that the store takes commits. All probers write one key: one that conflicts has seen
// another's commit, which proves as much.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.kv.Update(ctx, kv.UpdateOptions{}, func(t kv.Txn) error {
		return t.Put(probeKey(), newValue(16).fixed(2, uint64(t.Timestamp())))
	})
	if errors.Is(err, kv.ErrConflict) {
		return nil
	}
	return err
}
