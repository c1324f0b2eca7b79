package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"ankusa.dev/services/internal/benchcmd/figure"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/store"
)

const (
	claimSettleBar  = 0.4
	claimSettleRows = 200_000
)

// claimSettle compares rows per second through scheduler and lease stream with a loop that reads rows and commits as
// many writes for each.
func claimSettle(ctx context.Context, g *Rig) (figure.Result, error) {
	rows, warm := g.rows(claimSettleRows), g.rows(warmRows)
	t := waiting(1, beyond(rows))
	s, err := g.interleave(ctx,
		func(ctx context.Context) (float64, error) { return g.rate(ctx, t, raised(), warm, rows) },
		func(ctx context.Context) (rate float64, err error) {
			port, remove, err := g.Library.Open(ctx, t)
			if err != nil {
				return 0, err
			}
			rate, err = bareRate(ctx, port, raised().Core.Batch, warm, rows)
			return rate, errors.Join(err, port.Close(), remove())
		})
	if err != nil {
		return figure.Result{}, err
	}
	ratio := s[0].Median() / s[1].Median()
	return figure.Result{
		Value: claimSettleBar / ratio, Unit: "bar/figure",
		Against: "a loop that reads a page of rows and commits as many writes per row and page, on the same store",
		Spread:  max(s[0].Spread(), s[1].Spread()),
		Limits:  g.limits(map[string]any{"rows": rows, "tenants": 1}),
		Figures: map[string]any{
			"rows_per_second": s[0].Median(), "bare_rows_per_second": s[1].Median(), "ratio": ratio,
			"bar_at_least": claimSettleBar,
		},
	}, nil
}

// bareLoop deletes as many keys for each row as a settle does, and writes as many for each page. It knows a store's keys
// by their classes alone.
type bareLoop struct {
	port  kv.Store
	batch int
	rows  kv.Range
	hooks [][]byte
	fence kv.Pair
	page  []kv.Pair // fence and counter
	done  int
}

// bareRate is the loop's rate from one number of rows to another.
func bareRate(ctx context.Context, port kv.Store, batch, from, to int) (float64, error) {
	l := &bareLoop{port: port, batch: batch}
	if err := l.find(ctx); err != nil {
		return 0, fmt.Errorf("find rows: %w", err)
	}
	if err := l.until(ctx, from); err != nil {
		return 0, err
	}
	from = l.done
	began := time.Now()
	err := l.until(ctx, to)
	return float64(l.done-from) / time.Since(began).Seconds(), err
}

// find looks through the store for the keys that it will work on.
func (l *bareLoop) find(ctx context.Context) error {
	const step = 4096
	at := kv.Range{}
	for {
		pairs, err := l.scan(ctx, at, step)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			l.sort(p)
		}
		if len(pairs) < step {
			return nil
		}
		at.From = behind(pairs[len(pairs)-1].Key)
	}
}

// sort keeps what the loop needs of one pair. Of the fences it is the last of the one partition that has a counter.
func (l *bareLoop) sort(p kv.Pair) {
	switch store.Class(p.Key) {
	case "settle":
		l.fence = p
	case "counter":
		l.page = []kv.Pair{l.fence, p}
	case "row":
		if l.rows.From == nil {
			l.rows.From = p.Key
		}
		l.rows.To = behind(p.Key)
	case "hook":
		l.hooks = append(l.hooks, p.Key)
	}
}

// behind is the next key.
func behind(k []byte) []byte { return append(bytes.Clone(k), 0) }

func (l *bareLoop) scan(ctx context.Context, r kv.Range, limit int) (pairs []kv.Pair, err error) {
	err = l.port.View(ctx, func(tx kv.Reader) error {
		pairs, err = tx.Scan(ctx, kv.Scan{Range: r, Limit: limit})
		return err
	})
	return pairs, err
}

func (l *bareLoop) until(ctx context.Context, rows int) error {
	for l.done < rows {
		if err := l.turn(ctx); err != nil {
			return fmt.Errorf("after %d rows: %w", l.done, err)
		}
	}
	return nil
}

var errNoRows = errors.New("no rows are left")

// turn reads a page of rows and commits their end.
func (l *bareLoop) turn(ctx context.Context) error {
	rows, err := l.scan(ctx, l.rows, l.batch)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return errNoRows
	}
	_, err = l.port.Update(ctx, kv.UpdateOptions{Bound: store.CommitBound}, func(tx kv.Txn) error {
		var errs []error
		for i, r := range rows {
			errs = append(errs, tx.Delete(r.Key), tx.Delete(l.hooks[l.done+i]))
		}
		for _, p := range l.page {
			errs = append(errs, tx.Put(p.Key, p.Value))
		}
		return errors.Join(errs...)
	})
	l.rows.From = behind(rows[len(rows)-1].Key)
	l.done += len(rows)
	return err
}
