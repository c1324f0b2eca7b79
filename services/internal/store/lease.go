package store

import (
	"context"
	"errors"
	"fmt"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
)

var (
	// ErrLeaseChanged: the leader's lease is not what the caller took it for.
	ErrLeaseChanged = errors.New("leader lease changed")
	// ErrDeposed: a later leader has bumped the epoch. Nothing was written, and nothing of this term will be.
	ErrDeposed = errors.New("deposed by a later leader")
)

// Lease is the leader's lease as it stands in the store. It holds no time: a standby judges it by its own monotonic
// clock since it last saw the value change.
type Lease struct {
	Holder hook.RunID // zero: free
	Epoch  uint64
	Beat   uint64
}

func (l Lease) encode() []byte {
	return newValue(40).bytes(2, l.Holder[:]).uint(3, l.Epoch).uint(4, l.Beat)
}

func decodeLease(b []byte) (l Lease, err error) {
	if b == nil {
		return l, nil
	}
	err = decode("leader lease", b, func(f field) error {
		switch f.num {
		case 2:
			copy(l.Holder[:], f.b)
		case 3:
			l.Epoch = f.v
		case 4:
			l.Beat = f.v
		}
		return nil
	})
	return l, err
}

// LeaderLease reads the lease; the zero value is a cluster that never had a leader.
func (s *Store) LeaderLease(ctx context.Context) (l Lease, err error) {
	err = s.kv.View(ctx, func(r kv.Reader) error {
		l, err = readLease(ctx, r)
		return err
	})
	if err != nil {
		return l, fmt.Errorf("read leader lease: %w", err)
	}
	return l, nil
}

func readLease(ctx context.Context, r kv.Reader) (Lease, error) {
	b, err := r.Get(ctx, leaderKey())
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		return Lease{}, err
	}
	return decodeLease(b)
}

// TakeLease begins a term: the lease becomes holder's under the next epoch, if it still is what the caller saw.
func (s *Store) TakeLease(ctx context.Context, seen Lease, holder hook.RunID) (Lease, error) {
	return s.swapLease(ctx, "take", seen, Lease{Holder: holder, Epoch: seen.Epoch + 1, Beat: 1})
}

// RenewLease proves that the holder lives.
func (s *Store) RenewLease(ctx context.Context, mine Lease) (Lease, error) {
	next := mine
	next.Beat++
	return s.swapLease(ctx, "renew", mine, next)
}

// ReleaseLease frees the lease, so that a standby takes it at once.
func (s *Store) ReleaseLease(ctx context.Context, mine Lease) error {
	_, err := s.swapLease(ctx, "release", mine, Lease{Epoch: mine.Epoch, Beat: mine.Beat + 1})
	return err
}

// swapLease succeeds also where an earlier try of its own had landed unseen.
func (s *Store) swapLease(ctx context.Context, verb string, from, to Lease) (Lease, error) {
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		now, err := readLease(ctx, t)
		if err != nil {
			return err
		}
		if now != from && now != to {
			return ErrLeaseChanged
		}
		return t.Put(leaderKey(), to.encode())
	})
	if err != nil {
		return from, fmt.Errorf("%s leader lease of epoch %d: %w", verb, to.Epoch, err)
	}
	return to, nil
}

func encodeEpoch(epoch uint64) []byte { return newValue(16).fixed(2, epoch) }

func decodeEpoch(b []byte) (epoch uint64, err error) {
	if b == nil {
		return 0, nil
	}
	err = decode("epoch", b, func(f field) error {
		if f.num == 2 {
			epoch = f.v
		}
		return nil
	})
	return epoch, err
}

// Lead fences all that came before: from its return on, no transaction of an earlier epoch commits, and runners refuse
// what an earlier leader pushes. Bump is above the start of every transaction that a runner could have seen under an
// earlier epoch.
func (s *Store) Lead(ctx context.Context, l Lease, o LeaderOptions) (*Leader, error) {
	for p := range s.partitions {
		if err := s.bump(ctx, uint8(p), l.Epoch); err != nil {
			return nil, fmt.Errorf("fence partition %d for epoch %d: %w", p, l.Epoch, err)
		}
	}
	bump, err := s.kv.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("lead epoch %d: %w", l.Epoch, err)
	}
	leader := &Leader{store: s, epoch: l.Epoch, bump: bump, o: o}
	leader.records = make(chan struct{}, 1)
	leader.slots = make([]settler, s.partitions*FenceSlots)
	return leader, nil
}

// bump reads the epoch that it writes, so of two bumpers the later epoch stands.
func (s *Store) bump(ctx context.Context, partition uint8, epoch uint64) error {
	_, err := kv.Retry(ctx, s.kv, kv.UpdateOptions{}, attempts, func(t kv.Txn) error {
		b, err := t.Get(ctx, epochKey(partition))
		if err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
		now, err := decodeEpoch(b)
		if err != nil {
			return err
		}
		if now > epoch {
			return ErrDeposed
		}
		w := puts{txn: t}
		w.put(epochKey(partition), encodeEpoch(epoch))
		for i := range uint8(FenceSlots) {
			w.put(fenceKey(Slot{partition, i}), encodeEpoch(epoch))
		}
		return w.err
	})
	return err
}

// LeaderOptions say what the leader records beside the rows.
type LeaderOptions struct {
	// History keeps one record for each delivery that ended or failed, and the log of events.
	History bool
}

// Leader is one term. Each of its transactions reads its slot's fence, stops with ErrDeposed if the epoch there is not
// its own, and writes it back, so that a later leader's bump and it can never both commit.
type Leader struct {
	store *Store
	epoch uint64
	bump  hook.Timestamp
	o     LeaderOptions
	slots []settler
	// records lets changes of the cluster's records wait for each other, which would else conflict on the fence.
	records chan struct{}
}

// Epoch of the term.
func (l *Leader) Epoch() uint64 { return l.epoch }

// Bump separates rows that an earlier leader may have leased from those that it cannot have.
func (l *Leader) Bump() hook.Timestamp { return l.bump }

// hold reads the slot's fence as part of values already read, and writes it back.
func (l *Leader) hold(t kv.Txn, slot Slot, value []byte) error {
	epoch, err := decodeEpoch(value)
	if err != nil {
		return err
	}
	if epoch != l.epoch {
		return ErrDeposed
	}
	return t.Put(fenceKey(slot), encodeEpoch(l.epoch))
}
