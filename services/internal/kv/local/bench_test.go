package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ankusa.dev/services/internal/kv"
)

// The values are as long as an encoded hook of half a kilobyte.
var benchValue = bytes.Repeat([]byte("v"), 600)

func benchStore(b *testing.B) *Store {
	o := Default()
	o.Dir = b.TempDir()
	s, err := Open(o, zap.NewNop())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

func benchKey(family byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{0, 0, family, 't', 'e', 'n', 'a', 'n', 't', 0}, n)
}

// threePuts writes what a hook of its own is: body, lane row and counter.
func threePuts(n uint64) func(kv.Txn) error {
	return func(tx kv.Txn) error {
		for family := range byte(3) {
			if err := tx.Put(benchKey(family, n), benchValue); err != nil {
				return err
			}
		}
		return nil
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, committers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("puts=3/committers=%d", committers), func(b *testing.B) {
			s := benchStore(b)
			var n atomic.Uint64
			b.ReportAllocs()
			b.SetParallelism(max(1, committers/2)) // times GOMAXPROCS, 2 on the reference machine
			if committers == 1 {
				for b.Loop() {
					update(b, s, threePuts(n.Add(1)))
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					update(b, s, threePuts(n.Add(1)))
				}
			})
		})
	}
}

// BenchmarkUpdateBatch commits batches of hooks, as the accept path does: it looks up the dedupe keys and puts three
// keys per hook.
func BenchmarkUpdateBatch(b *testing.B) {
	const hooks = 100
	for _, committers := range []int{1, 16} {
		b.Run(fmt.Sprintf("hooks=%d/committers=%d", hooks, committers), func(b *testing.B) {
			s := benchStore(b)
			var n atomic.Uint64
			b.ReportAllocs()
			run := func() { update(b, s, hookBatch(&n, hooks)) }
			if committers == 1 {
				for b.Loop() {
					run()
				}
			} else {
				b.SetParallelism(committers / 2)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						run()
					}
				})
			}
			b.ReportMetric(float64(b.N*hooks)/b.Elapsed().Seconds(), "hooks/s")
		})
	}
}

func hookBatch(n *atomic.Uint64, hooks uint64) func(kv.Txn) error {
	return func(tx kv.Txn) error {
		last := n.Add(hooks)
		var dedupe [][]byte
		for i := last - hooks; i < last; i++ {
			dedupe = append(dedupe, benchKey(9, i))
		}
		if _, err := tx.BatchGet(context.Background(), dedupe); err != nil {
			return err
		}
		for i := last - hooks; i < last; i++ {
			if err := threePuts(i)(tx); err != nil {
				return err
			}
		}
		return nil
	}
}

func update(b *testing.B, s *Store, fn func(kv.Txn) error) {
	if _, err := s.Update(b.Context(), kv.UpdateOptions{}, fn); err != nil {
		b.Fatal(err)
	}
}

func fill(b *testing.B, s *Store, from, to uint64) {
	for at := from; at < to; at += 1000 {
		update(b, s, func(tx kv.Txn) error {
			for i := at; i < min(at+1000, to); i++ {
				if err := tx.Put(benchKey(0, i), benchValue); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// BenchmarkBatchGet reads neighbouring rows, as a claim does, scattered ones, as reads of hooks are, and keys that do
// not exist, as lookups of dedupe keys are.
func BenchmarkBatchGet(b *testing.B) {
	const rows, most = 100_000, 128
	for _, flushed := range []bool{false, true} {
		s := benchStore(b)
		fill(b, s, 0, rows)
		if flushed {
			require.NoError(b, s.db.Compact(b.Context(), []byte{dataPrefix}, []byte{dataEnd}, false))
		}
		for name, key := range map[string]func(at, i uint64) []byte{
			"neighbours": func(at, i uint64) []byte { return benchKey(0, at+i) },
			"scattered":  func(at, i uint64) []byte { return benchKey(0, (at+i*104_729)%rows) },
			"absent":     func(at, i uint64) []byte { return append(benchKey(0, (at+i*104_729)%rows), 'x') },
		} {
			for _, keys := range []int{8, 32, seekKeys, most} {
				b.Run(fmt.Sprintf("keys=%d/%s/flushed=%t", keys, name, flushed), func(b *testing.B) {
					batch := make([][]byte, keys)
					b.ReportAllocs()
					var at uint64
					for b.Loop() {
						at = (at + 7919) % (rows - most)
						for i := range batch {
							batch[i] = key(at, uint64(i))
						}
						if err := s.View(b.Context(), func(r kv.Reader) error {
							_, err := r.BatchGet(b.Context(), batch)
							return err
						}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkScanOverDeleted scans 128 rows that stand behind 100,000 deleted ones, from the first deleted key on, and,
// for comparison, from the first row that is left.
func BenchmarkScanOverDeleted(b *testing.B) {
	const deleted, limit = 100_000, 128
	for _, from := range []uint64{0, deleted} {
		b.Run(fmt.Sprintf("from=%d", from), func(b *testing.B) {
			s := benchStore(b)
			fill(b, s, 0, deleted+limit)
			for at := uint64(0); at < deleted; at += 1000 {
				update(b, s, func(tx kv.Txn) error {
					for i := at; i < at+1000; i++ {
						if err := tx.Delete(benchKey(0, i)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := s.View(b.Context(), func(r kv.Reader) error {
					got, err := r.Scan(b.Context(), kv.Scan{Range: kv.Range{From: benchKey(0, from)}, Limit: limit})
					if len(got) != limit {
						b.Fatalf("%d rows", len(got))
					}
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkViewEmpty(b *testing.B) {
	s := benchStore(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.View(b.Context(), func(kv.Reader) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
