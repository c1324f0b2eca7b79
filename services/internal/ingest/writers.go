package ingest

import (
	"context"
	"errors"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/ingest/notify"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// maxWriters is what the last byte of an id tells apart, and one stream names.
const maxWriters = wire.MaxWriters

// writers are those of one process, one for each commit of a partition that may run at once: a counter has one writer,
// and a writer one commit under way. The first raises the flag for all of them, since a leader that sees a flag counts the
// rows of every writer.
type writers []*store.Writer

// newWriters makes n writers, whose ids differ in the last byte.
func newWriters(s Store, id hook.RunID, n int) writers {
	list := make(writers, n)
	for i := range list {
		list[i] = s.NewWriter(id)
		id[len(id)-1]++
	}
	return list
}

func (w writers) ids() []hook.RunID {
	ids := make([]hook.RunID, len(w))
	for i := range w {
		ids[i] = w[i].ID()
	}
	return ids
}

func (w writers) flag() notify.Flag { return w[0] }

func (w writers) forCommits() []accept.Writer {
	list := make([]accept.Writer, len(w))
	for i := range w {
		list[i] = w[i]
	}
	return list
}

// beat renews the records of all.
func (w writers) beat(ctx context.Context) error {
	var errs []error
	for _, one := range w {
		errs = append(errs, one.Beat(ctx))
	}
	return errors.Join(errs...)
}
