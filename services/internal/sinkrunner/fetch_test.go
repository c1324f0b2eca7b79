package sinkrunner

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

func TestARowOrHookThatIsNotThereIsReportedAsGone(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.store.spoil = func(r hook.Row, f *store.Fetched) {
			if r.Hook == attempt(1).Row.Hook {
				f.Delivery = nil
			} else {
				f.Hook = nil
			}
		}
		f := h.joined(1)
		f.lease(attempt(1), attempt(2))
		for _, r := range f.reports(2) {
			require.Equal(t, hook.Gone, r.Outcome.Class)
			f.settle(r.Lease)
		}
		require.Zero(t, h.sink.count())
	})
}

func TestTheSourceIsReadAgainWhenTheCopyIsTooOld(t *testing.T) {
	for name, c := range map[string]struct {
		read   func(revision hook.Timestamp) (*source.Source, error)
		class  hook.Class
		reason string
		asked  []hook.Timestamp
	}{
		"as known": {
			func(hook.Timestamp) (*source.Source, error) { return newSource("log"), nil },
			hook.Delivered, "", []hook.Timestamp{70},
		},
		"a copy from before its creation": {
			func(revision hook.Timestamp) (*source.Source, error) {
				s := newSource("log")
				if revision == 70 {
					s.Incarnation = 4
				}
				return s, nil
			},
			hook.Delivered, "", []hook.Timestamp{70, 71},
		},
		"created anew": {
			func(hook.Timestamp) (*source.Source, error) { s := newSource("log"); s.Incarnation = 6; return s, nil },
			hook.SourceGone, "source_gone", []hook.Timestamp{70, 71},
		},
		"L12 deleted": {
			func(hook.Timestamp) (*source.Source, error) { return nil, store.ErrSourceNotFound },
			hook.SourceGone, "source_gone", []hook.Timestamp{70},
		},
		"not readable": {
			func(hook.Timestamp) (*source.Source, error) { return nil, kv.ErrUnavailable },
			hook.NotStarted, "source not readable", []hook.Timestamp{70},
		},
		"sink gone": {
			func(hook.Timestamp) (*source.Source, error) { return newSource("http"), nil },
			hook.SinkGone, "sink_gone 0 log", []hook.Timestamp{70},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(h *harness) {
				h.sources.read = func(owner, name string, revision hook.Timestamp) (*source.Source, error) {
					require.Equal(t, "acme", owner)
					require.Equal(t, "stripe", name)
					return c.read(revision)
				}
				f := h.joined(1)
				f.lease(attempt(1))
				o := f.reports(1)[0].Outcome
				require.Equal(t, c.class, o.Class)
				require.Equal(t, c.reason, o.Reason)
				require.Equal(t, c.asked, h.sources.asked)
				require.Equal(t, c.class == hook.Delivered, h.sink.count() == 1)
				f.settle(attempt(1).Lease)
			})
		})
	}
}

func TestARowBindsToItsIndexOrToTheOnlySinkOfItsType(t *testing.T) {
	for _, c := range []struct {
		types string
		index uint16
		want  int
	}{
		{"log", 0, 0}, {"http log", 1, 1}, {"http log", 0, 1}, {"log http", 1, 0}, {"log http", 5, 0},
		{"http log log", 0, -1}, {"http log log", 2, 2}, {"http http", 0, -1}, {"", 0, -1},
	} {
		src := newSource(strings.Fields(c.types)...)
		got := bind(src, hook.SinkKey{Index: c.index, Type: "log"})
		if c.want < 0 {
			require.Nil(t, got, "%+v", c)
			continue
		}
		require.Same(t, &src.Sinks[c.want], got, "%+v", c)
	}
}

func TestTheAttemptsOfOneMessageAreReadTogether(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		f := h.joined(1)
		var many []wire.Attempt
		for n := uint64(1); n <= 100; n++ {
			many = append(many, attempt(n))
		}
		f.lease(many...)
		for _, r := range f.reports(100) {
			f.settle(r.Lease)
		}
		require.Len(t, h.store.calls, 1)
		require.Len(t, h.store.calls[0], 100)
	})
}

func TestL03_AStoreThatCannotAnswerCostsNoAttempt(t *testing.T) {
	inBubble(t, nil, func(h *harness) {
		h.store.fault = func([]hook.Row) error { return kv.ErrUnavailable }
		f := h.joined(1)
		f.lease(attempt(1), attempt(2))
		for _, r := range f.reports(2) {
			require.Equal(t, hook.NotStarted, r.Outcome.Class)
			f.settle(r.Lease)
		}
		require.Len(t, h.store.calls, 1)
		h.store.mu.Lock()
		h.store.fault = nil
		h.store.mu.Unlock()
		f.lease(attempt(3))
		require.Equal(t, hook.Delivered, f.reports(1)[0].Outcome.Class)
		f.settle(attempt(3).Lease)
	})
}

func TestL04_AHookThatCannotBeReadFailsAlone(t *testing.T) {
	damaged := errors.New("corrupt value")
	inBubble(t, nil, func(h *harness) {
		h.store.fault = func(rows []hook.Row) error {
			for _, r := range rows {
				if r.Hook == attempt(2).Row.Hook {
					return damaged
				}
			}
			return nil
		}
		f := h.joined(1)
		f.lease(attempt(1), attempt(2), attempt(3))
		for _, r := range f.reports(3) {
			want := hook.Delivered
			if r.Lease.ID == 2 {
				want = hook.Transient // it counts, so that it ends among the dead letters
			}
			require.Equal(t, want, r.Outcome.Class)
			f.settle(r.Lease)
		}
	})
}

func TestALeaseThatFindsNoSlotAsksNothingOfTheStore(t *testing.T) {
	inBubble(t, func(c *Config) { c.Slots = 1 }, func(h *harness) {
		h.sink.deliver = hang
		f := h.joined(1)
		f.lease(attempt(1))
		synctest.Wait()
		f.lease(attempt(2))
		require.Equal(t, hook.NotStarted, f.reports(1)[0].Outcome.Class)
		synctest.Wait()
		require.Len(t, h.store.calls, 1)
	})
}
