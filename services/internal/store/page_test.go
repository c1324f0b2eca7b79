package store

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/kv/faultkv"
)

// records puts n records of a family, numbered from 0, and returns what counts scans from then on.
func (b *bench) records(n int, keyOf func([]byte) []byte) (scans *int) {
	_, err := b.kv.Update(b.t.Context(), kv.UpdateOptions{}, func(t kv.Txn) error {
		for i := range n {
			if err := t.Put(keyOf(numbered(i)), newValue(16)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(b.t, err)
	scans = new(int)
	b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
		if c.Op == faultkv.Scan {
			*scans++
		}
		return faultkv.Fault{}
	})
	return scans
}

func numbered(i int) []byte { return binary.BigEndian.AppendUint32(make([]byte, 12, 16), uint32(i)) }

func TestAllWritersAreReadPageByPage(t *testing.T) {
	b := newBench(t, nil)
	scans := b.records(5000, writerKey)
	all, err := b.Writers(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 5000)
	require.Equal(t, numbered(4999), all[4999].ID[:])
	require.Equal(t, 5000/pageSize+1, *scans)
}

func TestAllRunnersAreReadPageByPage(t *testing.T) {
	b := newBench(t, nil)
	scans := b.records(5000, runnerKey)
	all, err := b.Runners(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 5000)
	require.Equal(t, numbered(4999), all[4999].ID[:])
	require.Equal(t, 5000/pageSize+1, *scans)
}

// TestL03_APageThatDoesNotComeIsGivenUp: a call that reads page by page has no deadline that fits the whole.
func TestL03_APageThatDoesNotComeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.kv = faultkv.New(b.port.Unwrap(), func(c faultkv.Call) faultkv.Fault {
			if c.Op == faultkv.Scan {
				return faultkv.Fault{Latency: time.Hour}
			}
			return faultkv.Fault{}
		})
		leader := b.lead()
		for what, read := range map[string]func(context.Context) error{
			"counters": func(ctx context.Context) error { return b.Outstanding(ctx, 0, func(Work) {}) },
			"writers":  func(ctx context.Context) error { _, err := b.Writers(ctx); return err },
			"runners":  func(ctx context.Context) error { _, err := b.Runners(ctx); return err },
			"fold":     func(ctx context.Context) error { return leader.Fold(ctx, random16()) },
		} {
			began := time.Now()
			require.ErrorIs(t, read(t.Context()), context.DeadlineExceeded, what)
			require.Equal(t, pageTimeout, time.Since(began), what)
		}
	})
}
