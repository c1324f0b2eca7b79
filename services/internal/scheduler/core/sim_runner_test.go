package core

import (
	"sort"
	"time"

	"ankusa.dev/services/internal/hook"
)

type simRunner struct {
	w         *world
	id        hook.RunID
	slots     int
	batches   hook.Credit // of sinks that batch
	alive     bool
	connected bool
	term      int // of the stream
	running   map[hook.Lease]*simAttempt
	unacked   map[hook.Lease]hook.Report
}

type simAttempt struct {
	Lease
	deadline time.Duration
}

func (w *world) addRunner() {
	r := &simRunner{w: w, slots: 1 + w.rnd.IntN(10), alive: true, running: map[hook.Lease]*simAttempt{}, unacked: map[hook.Lease]hook.Report{}}
	for b := range r.id {
		r.id[b] = byte(w.rnd.IntN(256))
	}
	r.batches = w.batchCredit()
	w.runners = append(w.runners, r)
	r.connect()
}

func (w *world) told(id hook.RunID, do func(*simRunner)) {
	for _, r := range w.runners {
		if r.id == id && r.connected && r.alive {
			do(r)
		}
	}
}

// connect says hello to whoever leads, and tries again until it is heard.
func (r *simRunner) connect() {
	w := r.w
	if !r.alive || r.connected {
		return
	}
	if !w.stood {
		w.in(w.within(4*time.Second), r.connect)
		return
	}
	r.connected, r.term = true, w.term
	w.records[r.id] = 35 * time.Second
	h := Hello{Types: []string{"http", "sqs"}, Credit: hook.Credit{Slots: r.slots, Rows: r.batches.Rows, Bytes: r.batches.Bytes}}
	for ref, a := range r.running {
		h.Running = append(h.Running, hook.Running{Lease: ref, Row: a.Delivery.Row, Attempt: a.Attempt, Left: max(0, a.deadline-w.now)})
	}
	sort.Slice(h.Running, func(i, j int) bool { return leaseLess(h.Running[i].Lease, h.Running[j].Lease) })
	for _, p := range r.unacked {
		h.Reports = append(h.Reports, p)
	}
	sort.Slice(h.Reports, func(i, j int) bool { return leaseLess(h.Reports[i].Lease, h.Reports[j].Lease) })
	w.core.Joined(w.clock(), r.id, h)
}

func leaseLess(a, b hook.Lease) bool { return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.ID < b.ID }

// drop loses the stream without a word to the core, which is gone.
func (r *simRunner) drop() {
	if r.connected {
		r.connected = false
		r.w.in(r.w.within(4*time.Second), r.connect)
	}
}

func (r *simRunner) disconnect() {
	if !r.connected || !r.alive {
		return
	}
	r.w.losses++
	r.connected = false
	r.w.core.Lost(r.w.clock(), r.id)
	r.w.in(r.w.within(30*time.Second), r.connect)
}

func (r *simRunner) crash() {
	if !r.alive {
		return
	}
	r.w.losses++
	r.alive = false
	if r.connected && r.w.stood {
		r.w.core.Lost(r.w.clock(), r.id)
	}
	r.connected = false
	clear(r.running)
	clear(r.unacked)
	r.w.in(r.w.within(10*time.Second), r.w.addRunner)
}

// lease pushes an attempt, unless the stream breaks first.
func (w *world) lease(l Lease) {
	w.told(l.Runner, func(r *simRunner) {
		term := r.term
		w.in(w.within(20*time.Millisecond), func() {
			if r.alive && r.connected && r.term == term {
				r.start(l)
			}
		})
	})
}

func (r *simRunner) start(l Lease) {
	w := r.w
	r.hasRoom(&l)
	r.running[l.Lease] = &simAttempt{Lease: l, deadline: w.now + 30*time.Second}
	d := w.rows[l.Delivery.Ref()]
	if w.epoch > l.Lease.Epoch {
		delete(r.running, l.Lease)
		return
	}
	if d == nil || d.Version != l.Delivery.Version {
		w.gone++
		r.finish(l, hook.Outcome{Class: hook.Gone})
		return
	}
	w.inOrder(&l.Delivery.Row)
	f := w.fate[l.Delivery.Ref()]
	if f.attempts++; d.FirstAttemptAt == 0 { // an earlier one went with its leader, and is not on record
		f.first = w.now
	}
	w.stillOwed(&l)
	took := w.within(2 * time.Second)
	if w.chance(2) {
		took = 31 * time.Second
	}
	fails := w.weather[l.Delivery.Key] == down || w.chance(5)
	throttles := w.weather[l.Delivery.Key] == busy && w.rnd.IntN(3) > 0
	w.in(min(took, 30*time.Second), func() {
		if !r.alive || r.running[l.Lease] == nil {
			return
		}
		o := hook.Outcome{Class: hook.Delivered, Duration: took}
		switch {
		case took > 30*time.Second:
			o = hook.Outcome{Class: hook.TimedOut, Reason: "attempt_timeout 30000ms"}
		case throttles:
			o = hook.Outcome{Class: hook.Throttled, Reason: "http: status 429", Status: 429, RetryAfter: w.within(10 * time.Minute)}
		case fails:
			o = hook.Outcome{Class: hook.Transient, Reason: "http: status 503", Status: 503}
		default:
			f.sent++
		}
		r.finish(l, o)
	})
}

func (r *simRunner) finish(l Lease, o hook.Outcome) {
	delete(r.running, l.Lease)
	p := hook.Report{Lease: l.Lease, Row: l.Delivery.Row, Attempt: l.Attempt, Outcome: o}
	r.unacked[l.Lease] = p
	term := r.term
	r.w.in(r.w.within(20*time.Millisecond), func() {
		if r.alive && r.connected && r.term == term {
			r.w.model.reports(r.w, r.id, &p)
			r.w.core.Outcomes(r.w.clock(), r.id, []hook.Report{p})
		}
	})
}
