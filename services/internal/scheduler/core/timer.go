package core

import (
	"container/heap"

	"ankusa.dev/services/internal/hook"
)

// timer is something that becomes due. Entries are not taken out early: fire checks whether its reason still stands.
type timer struct {
	at   hook.Timestamp
	fire func(*Core)
}

// timers is a heap by time.
type timers struct{ h timerHeap }

func (t *timers) add(at hook.Timestamp, fire func(*Core)) { heap.Push(&t.h, timer{at, fire}) }

func (t *timers) first() hook.Timestamp {
	if len(t.h) == 0 {
		return 0
	}
	return t.h[0].at
}

func (t *timers) due(now hook.Timestamp) (timer, bool) {
	if len(t.h) == 0 || t.h[0].at > now {
		return timer{}, false
	}
	return heap.Pop(&t.h).(timer), true
}

type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return x
}

// dueHeap keeps a key's unsettled claims by due time, so that the lowest is known. An entry whose claim has ended, or has
// another due time by now, is skipped when it reaches the top.
type dueHeap []dueEntry

type dueEntry struct {
	at    hook.Timestamp
	claim *claim
}

func (e dueEntry) stands() bool { return e.claim.order == e.at }

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(dueEntry)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = dueEntry{}
	*h = old[:len(old)-1]
	return x
}

// lowest is the due time of the first unsettled claim, or zero.
func (h *dueHeap) lowest() hook.Timestamp {
	for len(*h) > 0 {
		if e := (*h)[0]; e.stands() {
			return e.at
		}
		heap.Pop(h)
	}
	return 0
}
