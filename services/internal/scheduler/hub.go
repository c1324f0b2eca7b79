package scheduler

import (
	"sync"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/store"
)

// watchQueue bounds the events that wait for one watcher; one that is slower is told so and cut off.
const watchQueue = 4096

// maxWatchers bounds the watchers of one leader.
const maxWatchers = 256

// hub hands events to those who watch. It never waits for them.
type hub struct {
	mu       sync.Mutex
	watchers map[*watcher]bool
	closed   bool
	// seen is the highest start of a settle that has landed. holds has, for each slot whose settle is under way, what
	// was seen before it began: the settle's own start is above that.
	seen  hook.Timestamp
	holds map[store.Slot]hook.Timestamp
}

// watcher is one stream's queue. fell is set when it overflowed.
type watcher struct {
	match func(*hook.Event) bool
	queue chan *watched
	fell  bool
}

// watched is an event with the position behind it.
type watched struct {
	event    hook.Event
	position hook.Timestamp
}

func newHub(now hook.Timestamp) *hub {
	return &hub{watchers: make(map[*watcher]bool), seen: now, holds: make(map[store.Slot]hook.Timestamp)}
}

// watch adds a watcher; false when there are too many, or the term is over.
func (h *hub) watch(match func(*hook.Event) bool) (*watcher, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.watchers) >= maxWatchers {
		return nil, false
	}
	w := &watcher{match: match, queue: make(chan *watched, watchQueue)}
	h.watchers[w] = true
	return w, true
}

// watched says whether anybody watches.
func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

func (h *hub) unwatch(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(w)
}

func (h *hub) remove(w *watcher) {
	if h.watchers[w] {
		delete(h.watchers, w)
		close(w.queue)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.watchers {
		h.remove(w)
	}
}

// hold marks the begin of a slot's settle.
func (h *hub) hold(s store.Slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds[s] = h.seen
}

// release marks its end.
func (h *hub) release(s store.Slot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holds, s)
}

// settled publishes what a settle brought about.
func (h *hub) settled(batch []hook.Settlement, start hook.Timestamp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = max(h.seen, start)
	if len(h.watchers) == 0 {
		return
	}
	for i := range batch {
		events := batch[i].Transitions(start)
		h.offer(&events[len(events)-1])
	}
}

// publish hands on what happens between settles: it is logged with the settle that follows.
func (h *hub) publish(events []hook.Event) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		if len(h.watchers) == 0 {
			return
		}
		h.offer(&events[i])
	}
}

func (h *hub) offer(e *hook.Event) {
	var shared *watched
	for w := range h.watchers {
		if !w.match(e) {
			continue
		}
		if shared == nil {
			shared = &watched{*e, h.position()}
		}
		select {
		case w.queue <- shared:
		default:
			w.fell = true
			h.remove(w)
		}
	}
}

// position is held back to the oldest settle under way: a log read from there misses nothing.
func (h *hub) position() hook.Timestamp {
	at := h.seen
	for _, held := range h.holds {
		at = min(at, held)
	}
	return at
}
