package tikv

import (
	"context"
	"errors"
	"fmt"

	tikverr "github.com/tikv/client-go/v2/error"

	"ankusa.dev/services/internal/kv"
)

var errClosed = fmt.Errorf("store closed: %w", kv.ErrUnavailable)

// failure gives an error of the client its kind. A context's error passes only when that context has ended: the
// client's own timeouts carry the same errors, and mean that the store cannot be reached.
func (s *Store) failure(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if s.life.Err() != nil {
		return errClosed
	}
	if known := s.kind(err); known != nil {
		return fmt.Errorf("%s: %w", op, known)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	return fmt.Errorf("%s: %w: %v", op, kv.ErrUnavailable, err)
}

// kind is the port's error for one that the client tells apart, else nil.
func (s *Store) kind(err error) error {
	var conflict *tikverr.ErrWriteConflict
	var entry *tikverr.ErrEntryTooLarge
	var total *tikverr.ErrTxnTooLarge
	switch {
	case tikverr.IsErrNotFound(err):
		return kv.ErrNotFound
	case errors.As(err, &conflict):
		return s.conflict(conflict.GetKey())
	case errors.As(err, &entry), errors.As(err, &total):
		return kv.ErrTooLarge
	case tikverr.IsErrorUndetermined(err):
		return kv.ErrUndetermined
	}
	return nil
}

func (s *Store) conflict(key []byte) error {
	if len(key) < len(s.space) {
		return kv.ErrConflict
	}
	return &kv.ConflictError{Key: s.space.strip(key)}
}
