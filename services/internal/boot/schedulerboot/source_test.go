package schedulerboot

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/local"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/store"
)

// shelf is a store of sources. before runs ahead of each write, as another process would.
type shelf struct {
	sources map[string]*source.Source
	corrupt bool
	err     error
	before  func(*shelf)
	writes  []string
}

func (s *shelf) Source(_ context.Context, owner, name string) (*source.Source, error) {
	found := s.sources[source.ID(owner, name)]
	switch {
	case s.err != nil:
		return nil, s.err
	case s.corrupt:
		return nil, fmt.Errorf("read source: %w", source.ErrStored)
	case found == nil:
		return nil, fmt.Errorf("read source: %w", store.ErrSourceNotFound)
	}
	return found, nil
}

func (s *shelf) CreateSource(_ context.Context, one *source.Source) (*source.Source, error) {
	s.interfere()
	if s.sources[one.ID()] != nil {
		return nil, fmt.Errorf("create source: %w", store.ErrSourceExists)
	}
	return s.put("create", one), nil
}

func (s *shelf) UpdateSource(_ context.Context, one *source.Source) (*source.Source, error) {
	s.interfere()
	if s.sources[one.ID()] == nil {
		return nil, fmt.Errorf("update source: %w", store.ErrSourceNotFound)
	}
	return s.put("update", one), nil
}

func (s *shelf) interfere() {
	if before := s.before; before != nil {
		s.before = nil
		before(s)
	}
}

func (s *shelf) put(verb string, one *source.Source) *source.Source {
	s.writes = append(s.writes, verb+" "+one.ID())
	s.sources[one.ID()] = one
	return one
}

func newSource(name string, change func(*source.Source)) *source.Source {
	s := source.New("default", name)
	s.Verify.Type, s.Sinks = source.VerifyNone, []source.Sink{{Type: source.SinkLog}}
	if change != nil {
		change(s)
	}
	return s
}

func apply(t *testing.T, s *shelf, list ...*source.Source) error {
	t.Helper()
	return applySources(t.Context(), s, list, zap.NewNop())
}

func TestSourcesAreCreatedUpdatedOrLeftAlone(t *testing.T) {
	s := &shelf{sources: map[string]*source.Source{
		"same": newSource("same", nil), "old": newSource("old", nil), "other": newSource("other", nil),
	}}
	changed := newSource("old", func(s *source.Source) { s.MaxHeaders = 3 })
	require.NoError(t, apply(t, s, newSource("new", nil), newSource("same", nil), changed))
	require.Equal(t, []string{"create new", "update old"}, s.writes)
	require.Contains(t, s.sources, "other")
}

func TestASourceThatAnotherProcessWritesMeanwhileIsReadAgain(t *testing.T) {
	s := &shelf{sources: map[string]*source.Source{}, before: func(s *shelf) { s.sources["a"] = newSource("a", nil) }}
	require.NoError(t, apply(t, s, newSource("a", nil)))
	require.Empty(t, s.writes)

	s = &shelf{sources: map[string]*source.Source{"a": newSource("a", nil)}, before: func(s *shelf) { delete(s.sources, "a") }}
	require.NoError(t, apply(t, s, newSource("a", func(s *source.Source) { s.MaxHeaders = 3 })))
	require.Equal(t, []string{"create a"}, s.writes)
}

func TestL47_AStoredSourceThatCannotBeReadIsReplaced(t *testing.T) {
	s := &shelf{sources: map[string]*source.Source{"a": newSource("a", nil)}, corrupt: true}
	require.NoError(t, apply(t, s, newSource("a", nil)))
	require.Equal(t, []string{"update a"}, s.writes)
}

func TestSchedulersThatStartAtOnceEndWhereOneWould(t *testing.T) {
	port, err := local.OpenMem(zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, port.Close()) }()
	st, err := store.Open(t.Context(), port, store.Options{})
	require.NoError(t, err)
	together := func(list ...*source.Source) {
		errs := make(chan error)
		for range 8 {
			go func() { errs <- applySources(t.Context(), st, list, zap.NewNop()) }()
		}
		for range 8 {
			require.NoError(t, <-errs)
		}
	}
	together(newSource("a", nil), newSource("b", nil))
	before, err := st.ListSources(t.Context(), "default", 10)
	require.NoError(t, err)
	require.Len(t, before, 2)
	together(newSource("a", func(s *source.Source) { s.MaxHeaders = 3 }), newSource("b", nil))
	after, err := st.ListSources(t.Context(), "default", 10)
	require.NoError(t, err)
	require.Equal(t, 3, after[0].MaxHeaders)
	require.Equal(t, before[0].Incarnation, after[0].Incarnation)
	require.Equal(t, before[1], after[1], "nobody writes what is as it should be")
}

func TestASpreadThatDiffersFromTheStoredOneIsABadConfiguration(t *testing.T) {
	s := &shelf{sources: map[string]*source.Source{"a": newSource("a", nil)}}
	err := apply(t, s, newSource("a", func(s *source.Source) { s.Spread = 4 }))
	var faults *config.Error
	require.True(t, errors.As(err, &faults))
	require.Equal(t, "sources.a.spread must be 1, as it is fixed for the life of a source, got 4", faults.Faults[0].String())
	require.Empty(t, s.writes)
}

func TestAStoreThatDoesNotAnswerIsAFailure(t *testing.T) {
	s := &shelf{err: kv.ErrUnavailable}
	require.ErrorIs(t, apply(t, s, newSource("a", nil)), kv.ErrUnavailable)
}
