package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/benchcmd/stage"
)

const testScale = 400

// newRig is one that tries out whether everything works, on a few rows.
func newRig(t *testing.T) *Rig {
	g := NewRig(t.TempDir(), io.Discard)
	g.Scale, g.Watch, g.Library.Quiet = testScale, 900*time.Millisecond, 0
	g.Library.Options.CacheBytes, g.Library.Options.MemTableBytes = 1<<20, 4<<20
	return g
}

func TestEveryBenchmarkPrintsItsLine(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, Run(t.Context(), newRig(t), []string{name}, &out))
			var line map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			require.Equal(t, name, line["bench"])
			for _, field := range []string{"value", "unit", "against", "spread"} {
				require.Contains(t, line, field)
			}
			limits := line["limits"].(map[string]any)
			require.EqualValues(t, testScale, limits["rows_divided_by"])
			require.EqualValues(t, 1, limits["repeat"])
			require.Greater(t, len(line), 6, "figures of its own")
		})
	}
}

func TestAnUnknownBenchmarkIsNamed(t *testing.T) {
	err := Run(t.Context(), newRig(t), []string{"backlog", "backlok"}, io.Discard)
	require.ErrorContains(t, err, `"backlok"`)
}

// settleAll has a scheduler settle all rows of one tenant, and returns what it wrote for them.
func settleAll(t *testing.T, g *Rig, rows int) (done stage.Counts) {
	err := g.on(t.Context(), waiting(1, rows), raised(), func(ctx context.Context, s *stage.Stage) error {
		c, err := full(ctx, s, crew())
		if err != nil {
			return err
		}
		before := s.Counts()
		_, err = laps(ctx, c, rows)
		done = s.Counts().Sub(before)
		return errors.Join(err, c.Close())
	})
	require.NoError(t, err)
	return done
}

func TestTheBareLoopWritesAsMuchAsASettle(t *testing.T) {
	const rows = 1000
	g := newRig(t)
	batch := raised().Core.Batch
	done := settleAll(t, g, rows)
	// A renewal of the lease writes one key.
	require.Equal(t, 2*rows+2*done.Calls["settle"], done.Writes-done.Calls["lease"])
	require.GreaterOrEqual(t, done.Calls["settle"], (rows+4*batch-1)/(4*batch), "at most four pages at once")

	port, remove, err := g.Library.Open(t.Context(), waiting(1, rows))
	require.NoError(t, err)
	s, err := stage.Open(t.Context(), port, raised(), nil)
	require.NoError(t, err)
	l := &bareLoop{port: s.Port(), batch: batch}
	require.NoError(t, l.find(t.Context()))
	before := s.Counts()
	require.NoError(t, l.until(t.Context(), rows))
	bare := s.Counts().Sub(before)
	pages := (rows + batch - 1) / batch
	require.Equal(t, pages, bare.Transactions)
	require.Equal(t, 2*rows+2*pages, bare.Writes)
	require.ErrorIs(t, l.turn(t.Context()), errNoRows)
	require.NoError(t, s.Close())
	require.NoError(t, remove())
}

func TestOneSideAfterTheOtherIsMeasured(t *testing.T) {
	g, order := newRig(t), ""
	g.Repeat = 3
	side := func(name string, figure float64) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			order += name
			return figure, nil
		}
	}
	s, err := g.interleave(t.Context(), side("a", 1), side("b", 2))
	require.NoError(t, err)
	require.Equal(t, "ababab", order)
	require.InDelta(t, 1, s[0].Median(), 0)
	require.InDelta(t, 2, s[1].Median(), 0)
}
