package sourcecache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/sourcecache"
	"ankusa.dev/services/internal/store"
)

// shelf is a store of sources that counts its reads and can be slow, broken or late.
type shelf struct {
	mu      sync.Mutex
	sources map[string]*source.Source
	err     error
	slow    time.Duration
	reads   atomic.Int32
}

func (s *shelf) Source(ctx context.Context, owner, name string) (*source.Source, error) {
	s.reads.Add(1)
	s.mu.Lock()
	found, err, slow := s.sources[source.ID(owner, name)], s.err, s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err == nil && found == nil {
		err = store.ErrSourceNotFound
	}
	return found, err
}

func (s *shelf) put(name string, revision hook.Timestamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources == nil {
		s.sources = map[string]*source.Source{}
	}
	src := source.New(hook.DefaultTenant, name)
	src.Revision, src.Incarnation = revision, 1
	s.sources[name] = src
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *shelf) pace(slow time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = slow
}

const owner = hook.DefaultTenant

func TestSourceIsReadOncePerTTLAndNeverByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		for range 3 {
			_, err := c.Source(t.Context(), owner, "a")
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, s.reads.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, s.reads.Load(), "an idle cache makes no call")
		_, err := c.Source(t.Context(), owner, "a")
		require.NoError(t, err)
		require.EqualValues(t, 2, s.reads.Load())
	})
}

func TestAnUnchangedSourceKeepsItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.put("a", 1)
		built := 0
		c := sourcecache.New(s, sourcecache.Default(), func(*source.Source) int { built++; return built }, nil)
		for range 5 {
			v, err := c.Source(t.Context(), owner, "a")
			require.NoError(t, err)
			require.Equal(t, 1, v)
			time.Sleep(2 * time.Second)
		}
		s.put("a", 2)
		v, err := c.Source(t.Context(), owner, "a")
		require.NoError(t, err)
		require.Equal(t, 2, v)
	})
}

func TestManyCallersShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{slow: 100 * time.Millisecond}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := c.Source(t.Context(), owner, "a")
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, s.reads.Load())
	})
}

func TestAReadOutlivesTheCallerThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{slow: 100 * time.Millisecond}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = c.Source(ctx, owner, "a") }()
		synctest.Wait()
		cancel()
		_, err := c.Source(t.Context(), owner, "a")
		require.NoError(t, err)
	})
}

func TestAWaitingCallerLeavesWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{slow: time.Second}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		go func() { _, _ = c.Source(t.Context(), owner, "a") }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Source(ctx, owner, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
	})
}

func TestAStoreThatCannotAnswerIsNeverAnUnknownSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		broken := errors.New("broken")
		s.fail(broken)
		_, err := c.Source(t.Context(), owner, "a")
		require.ErrorIs(t, err, broken)
		require.NotErrorIs(t, err, store.ErrSourceNotFound)
		s.fail(nil)
		_, err = c.Source(t.Context(), owner, "a")
		require.NoError(t, err, "an error is not remembered")
		time.Sleep(2 * time.Second)
		s.fail(broken)
		_, err = c.Source(t.Context(), owner, "a")
		require.ErrorIs(t, err, broken, "an old answer does not stand in")
	})
}

func TestUnknownSourcesAreRememberedWithinABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		config := sourcecache.Default()
		config.MaxUnknown = 10
		c := sourcecache.Plain(s, config)
		for i := range 1000 {
			_, err := c.Source(t.Context(), owner, fmt.Sprint("x", i))
			require.ErrorIs(t, err, store.ErrSourceNotFound)
		}
		_, unknown := c.Len()
		require.Equal(t, 10, unknown)
		before := s.reads.Load()
		_, err := c.Source(t.Context(), owner, "x999")
		require.ErrorIs(t, err, store.ErrSourceNotFound)
		require.Equal(t, before, s.reads.Load())
	})
}

func TestTheLeastRecentlyUsedSourceLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		for _, n := range []string{"a", "b", "c"} {
			s.put(n, 1)
		}
		config := sourcecache.Default()
		config.MaxSources = 2
		var left []string
		c := sourcecache.New(s, config, (*source.Source).ID, func(id string) { left = append(left, id) })
		for _, n := range []string{"a", "b", "a", "c"} {
			_, err := c.Source(t.Context(), owner, n)
			require.NoError(t, err)
		}
		require.Equal(t, []string{"b"}, left)
	})
}

func TestAReadThatLandsAfterItsSourceMadeRoomBringsItBackForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.put("a", 1)
		s.put("b", 1)
		config := sourcecache.Default()
		config.MaxSources = 1
		var left []string
		c := sourcecache.New(s, config, (*source.Source).ID, func(id string) { left = append(left, id) })
		read := func(name string) {
			_, err := c.Source(t.Context(), owner, name)
			require.NoError(t, err)
		}
		read("a")
		time.Sleep(2 * time.Second)
		s.pace(100 * time.Millisecond)
		go read("a")
		synctest.Wait()
		s.pace(0)
		read("b")
		time.Sleep(time.Second / 2)
		require.Equal(t, []string{"a"}, left, "what has left does not leave again")
		reads := s.reads.Load()
		read("b")
		require.Equal(t, reads, s.reads.Load(), "b is still held")
		sources, _ := c.Len()
		require.Equal(t, 1, sources)
	})
}

func TestADeletedSourceIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.put("a", 1)
		var left []string
		c := sourcecache.New(s, sourcecache.Default(), (*source.Source).ID, func(id string) { left = append(left, id) })
		_, err := c.Source(t.Context(), owner, "a")
		require.NoError(t, err)
		delete(s.sources, "a")
		time.Sleep(2 * time.Second)
		_, err = c.Source(t.Context(), owner, "a")
		require.ErrorIs(t, err, store.ErrSourceNotFound)
		require.Equal(t, []string{"a"}, left)
	})
}

func TestAtLeastReadsPastAnOldAnswerAndPastAnOldRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{slow: 100 * time.Millisecond}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		go func() { _, _ = c.Source(t.Context(), owner, "a") }()
		synctest.Wait()
		s.put("a", 2)
		src, err := c.AtLeast(t.Context(), owner, "a", 2)
		require.NoError(t, err)
		require.EqualValues(t, 2, src.Revision)
		reads := s.reads.Load()
		_, err = c.AtLeast(t.Context(), owner, "a", 2)
		require.NoError(t, err)
		require.Equal(t, reads, s.reads.Load())
	})
}

func TestForgetAlsoForgetsAReadUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{slow: 100 * time.Millisecond}
		s.put("a", 1)
		c := sourcecache.Plain(s, sourcecache.Default())
		go func() { _, _ = c.Source(t.Context(), owner, "a") }()
		synctest.Wait()
		s.put("a", 2)
		c.Forget(owner, "a")
		time.Sleep(200 * time.Millisecond)
		src, err := c.Source(t.Context(), owner, "a")
		require.NoError(t, err)
		require.EqualValues(t, 2, src.Revision)
	})
}

func TestAPanicOfTheReaderLeavesNobodyWaiting(t *testing.T) {
	c := sourcecache.Plain(panicking{}, sourcecache.Default())
	for range 2 {
		require.Panics(t, func() { _, _ = c.Source(t.Context(), owner, "a") })
	}
}

type panicking struct{}

func (panicking) Source(context.Context, string, string) (*source.Source, error) { panic("reader") }
