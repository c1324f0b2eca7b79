package queue

import (
	"fmt"
	"testing"
)

// BenchmarkTake is the time for which the lock is held by one taking: why a
// batch is taken in chunks.
func BenchmarkTake(b *testing.B) {
	for _, size := range []int{64, 1000} {
		for _, kinds := range []Kinds{{}, {Groups: true, Lanes: true}} {
			b.Run(fmt.Sprintf("nodes=%d/keyed=%t", size, kinds.Lanes), func(b *testing.B) {
				q := New(Limits{}, kinds)
				nodes := make([]Node, size)
				keys := make([]Keys, 16)
				for i := range keys {
					keys[i] = Keys{Group: fmt.Sprint(i), Lane: fmt.Sprint(i), HasLane: i%2 == 0}
				}
				batch := &Batch{}
				for b.Loop() {
					b.StopTimer()
					for i := range nodes {
						q.Admit(&nodes[i], keys[i%len(keys)], 0)
					}
					q.Ready(0)
					b.StartTimer()
					q.Take(batch, size)
					b.StopTimer()
					q.Seal(batch, 0)
					q.Finish(batch)
					q.Release(batch, 0)
					batch.Reset()
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkAdmit is what the lock covers of an admission, and of the leaving
// that makes room for it.
func BenchmarkAdmit(b *testing.B) {
	for _, kinds := range []Kinds{{}, {Groups: true}, {Groups: true, Lanes: true}, {Groups: true, Lanes: true, Bins: true}} {
		b.Run(fmt.Sprintf("%+v", kinds), func(b *testing.B) {
			q := New(Limits{}, kinds)
			n, k := &Node{}, Keys{Group: "tenant", Lane: "lane", Bin: "bin", HasLane: true}
			b.ReportAllocs()
			for b.Loop() {
				q.Admit(n, k, 0)
				q.Leave(n, 0)
			}
		})
	}
}
