// Package core decides. It is the state machine of one term of the leading scheduler: which rows are claimed, who runs
// next, what an outcome does to a delivery. It has no clock, no goroutine, no store and no network: events come in with
// the time at which they are handled, effects go out, and whoever drives it carries them out.
//
// A delivery is known by its hook and sink alone. Nothing here grows with tenants, keys or rows that have no work.
package core

import (
	"time"

	"ankusa.dev/services/internal/hook"
)

// Term is what a leader starts with.
type Term struct {
	Epoch uint64
	// Bump parts the rows that an earlier leader may have leased from those that it cannot have.
	Bump hook.Timestamp
	// Known runners that may hold leases of an earlier term, and how long the longest of them can last.
	Known map[hook.RunID]time.Duration
	Now   hook.Timestamp
}

// Source is what the core knows of a row's source as it is now.
type Source struct {
	Found       bool
	Incarnation uint64
	Revision    hook.Timestamp
	Policy      hook.RetryPolicy
}

// Core is not safe for concurrent use: one goroutine owns it.
type Core struct {
	cfg    Config
	epoch  uint64
	bump   hook.Timestamp
	now    hook.Timestamp
	random func() float64

	claims  map[hook.Ref]*claim
	keys    map[hook.SinkKey]*sinkKey
	tenants map[string]*tenant
	window  window
	running int

	runnable  ring[*tenant] // a key of theirs could start an attempt
	hungry    ring[*tenant] // a key of theirs has rows to scan
	served    ring[*tenant] // others whose scans are under way
	admitting ring[*tenant] // their window has room for the row that is next by now
	stalled   []*sinkKey    // no runner takes their type now

	lanes  int     // held
	turns  int     // of those, that wait for their turn
	asking []*lane // to be read
	ended  endedLanes
	hushes map[laneID]hook.Timestamp

	runners   map[hook.RunID]*runner
	slots     int // of all connected runners
	rows      int // of theirs, for attempts of sinks that batch
	credit    ring[*runner]
	batching  ring[*sinkKey] // of sinks that batch, that could start an attempt
	fleet     uint64         // changes of the connected runners
	freed     bool           // one has more room than when keys last stalled
	nextLease uint64
	nextKey   uint64
	leases    list // by deadline

	reads     reads
	budget    budget
	timers    timers
	waiting   int // rows remembered until they are due
	blocked   int // lanes whose heads are among them
	gate      gate
	opened    int     // breakers that are not closed
	restarts  int     // scans that began again from a key's beginning
	purging   purging // what is condemned
	out       Effects
	spare     Effects // what was taken last, for its room
	unwatched bool
}

// maxWaiting bounds the rows that are remembered until they are due; beyond it the store is scanned for them.
const maxWaiting = 16384

// New starts a term. random draws from [0, 1).
func New(cfg Config, t Term, random func() float64) *Core {
	c := &Core{
		epoch: t.Epoch, bump: t.Bump, now: t.Now, random: random,
		claims: make(map[hook.Ref]*claim), keys: make(map[hook.SinkKey]*sinkKey),
		tenants: make(map[string]*tenant), runners: make(map[hook.RunID]*runner),
		gate: gate{waiting: make(map[hook.RunID]bool)},
	}
	c.Configure(t.Now, cfg)
	c.shut(t.Known)
	return c
}

// Configure replaces the settings. Nothing claimed or running is dropped; lower limits only stop the next start.
func (c *Core) Configure(now hook.Timestamp, cfg Config) {
	c.advance(now)
	c.cfg = cfg
	if cfg.Breakers.Failures == 0 {
		for _, k := range c.sortedKeys() {
			if k.breaker.state != closed {
				c.release(k)
			}
		}
	}
	c.window.maxRows, c.window.maxBytes = cfg.MaxInflight, cfg.MaxInflightBytes
	for _, t := range c.tenants {
		c.limit(t)
	}
	c.settleRings()
}

// Tick lets time pass. It is due at the time that the last effects named.
func (c *Core) Tick(now hook.Timestamp) {
	c.advance(now)
	c.expireLeases()
	for {
		t, ok := c.timers.due(c.now)
		if !ok {
			break
		}
		t.fire(c)
	}
}

// Take returns the effects of all events since the last call, with what they made possible: attempts that can start
// and scans that have room. Leases, settles and acks are the caller's until the next call, which has their room used again.
func (c *Core) Take() Effects {
	c.giveBackOverdue()
	c.purge()
	c.letIn()
	c.dispatch()
	c.scan()
	c.sendAsked()
	c.watchBudget()
	out := c.out
	out.Wake = c.wake()
	c.out = c.spare.emptied()
	c.spare = Effects{Leases: out.Leases, Settles: out.Settles, Urgent: out.Urgent, Acks: out.Acks}
	return out
}

// beginGently has every key with work start with one attempt, after whatever held all of them up.
func (c *Core) beginGently() {
	for _, k := range c.keys {
		if k.running == 0 {
			c.begin(k)
		}
	}
}

func (c *Core) advance(now hook.Timestamp) { c.now = max(c.now, now) }

func (c *Core) wake() hook.Timestamp {
	at := c.timers.first()
	if l := c.leases.first(); l != nil && (at == 0 || l.deadline < at) {
		at = l.deadline
	}
	return at
}

// Unwatched says whether nobody wants the events of deliveries now; those of breakers come in any case.
func (c *Core) Unwatched(yes bool) { c.unwatched = yes }

// Stats are gauges.
type Stats struct {
	Claimed      int
	ClaimedBytes int64
	Running      int
	Runnable     int // tenants
	Waiting      int
	Lanes        int // held
	LanesBlocked int // by heads that wait
	Keys         int
	Tenants      int
	Runners      int
	Slots        int
	Backlogs     int // tenants with rows to scan
	Overdue      int // scans without an answer for long
	GateOpen     bool
	BreakersOpen int
	Restarts     int // scans that had to begin again from a key's beginning, in this term
}

// Stats reads the gauges.
func (c *Core) Stats() Stats {
	return Stats{
		Claimed: c.window.rows, ClaimedBytes: c.window.bytes, Running: c.running, Runnable: c.runnable.n,
		Lanes: c.lanes, LanesBlocked: c.blocked, Waiting: c.waiting, Keys: len(c.keys), Tenants: len(c.tenants),
		Runners: len(c.runners), Slots: c.slots,
		Backlogs: c.hungry.n, Overdue: c.budget.overdue, GateOpen: c.gate.open, Restarts: c.restarts, BreakersOpen: c.opened,
	}
}
