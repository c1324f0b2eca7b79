package schedulerboot

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// sourceStore is what applySources needs of the store.
type sourceStore interface {
	Source(ctx context.Context, owner, name string) (*source.Source, error)
	CreateSource(ctx context.Context, s *source.Source) (*source.Source, error)
	UpdateSource(ctx context.Context, s *source.Source) (*source.Source, error)
}

// applySources creates the sources that the store lacks and updates those that differ. It removes none. Every scheduler
// does it as it starts, not as it begins to lead: a file takes effect when its process starts and never again, so that a
// standby with an old file brings nothing back when it takes over. Several may do it at once: with one file between them
// they end where one of them would, and each source gets one incarnation. A source that the store cannot take as it is
// fails with a *config.Error.
func applySources(ctx context.Context, s sourceStore, list []*source.Source, log *zap.Logger) error {
	for _, one := range list {
		change, err := applySource(ctx, s, one)
		if err != nil {
			return err
		}
		log.Info("source applied", zap.String("source_id", one.ID()), zap.String("change", change))
	}
	return nil
}

// applyTries bounds the rounds against others who create or remove the same source.
const applyTries = 5

func applySource(ctx context.Context, s sourceStore, one *source.Source) (change string, err error) {
	for range applyTries {
		change, err = applyOnce(ctx, s, one)
		if !errors.Is(err, store.ErrSourceExists) && !errors.Is(err, store.ErrSourceNotFound) {
			return change, err
		}
	}
	return "", err
}

func applyOnce(ctx context.Context, s sourceStore, one *source.Source) (string, error) {
	stored, err := s.Source(ctx, one.Tenant, one.Name)
	switch {
	case errors.Is(err, store.ErrSourceNotFound):
		_, err = s.CreateSource(ctx, one)
		return "created", err
	case errors.Is(err, source.ErrStored): // what cannot be read is replaced
	case err != nil:
		return "", err
	case stored.Spread != one.Spread:
		return "", &config.Error{Path: "stored source " + one.ID(), Faults: []config.Fault{{
			Key:     "sources." + one.Name + ".spread",
			Problem: fmt.Sprintf("must be %d, as it is fixed for the life of a source, got %d", stored.Spread, one.Spread),
		}}}
	case stored.SameSettings(one):
		return "unchanged", nil
	}
	_, err = s.UpdateSource(ctx, one)
	return "updated", err
}
