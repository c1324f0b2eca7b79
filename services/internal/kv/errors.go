package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

var (
	// ErrNotFound: the key does not exist in the snapshot.
	ErrNotFound = errors.New("key not found")
	// ErrConflict: another transaction committed a key that this one wrote or locked. Nothing was written.
	ErrConflict = errors.New("conflict")
	// ErrBound: the commit came later than its bound allows. Nothing was written.
	ErrBound = errors.New("commit past its bound")
	// ErrUndetermined: the commit may or may not have happened. Only reading tells.
	ErrUndetermined = errors.New("commit undetermined")
	// ErrUnavailable: the store cannot serve now. Nothing was written.
	ErrUnavailable = errors.New("store unavailable")
	// ErrTooLarge: an entry or a transaction is above the store's limits. Nothing was written, and a retry is useless.
	ErrTooLarge = errors.New("entry or transaction too large")
)

// ConflictError is an ErrConflict that knows one of the keys in conflict.
type ConflictError struct{ Key []byte }

func (e *ConflictError) Error() string { return fmt.Sprintf("conflict on key %x", e.Key) }

// Is reports that the error is of kind ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Retry is Update, run again on a conflict or a commit past its bound, at most attempts times with a short jittered
// pause between. Any other error, the undetermined included, is returned at once.
func Retry(ctx context.Context, s Store, o UpdateOptions, attempts int, fn func(Txn) error) (Timestamp, error) {
	for i := 1; ; i++ {
		ts, err := s.Update(ctx, o, fn)
		if err == nil || i >= attempts || !(errors.Is(err, ErrConflict) || errors.Is(err, ErrBound)) {
			return ts, err
		}
		if err := pause(ctx, i); err != nil {
			return 0, err
		}
	}
}

func pause(ctx context.Context, attempt int) error {
	ceiling := min(time.Millisecond<<min(attempt, 8), 100*time.Millisecond)
	t := time.NewTimer(ceiling/2 + rand.N(ceiling/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
