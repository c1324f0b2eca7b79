package faultkv

import (
	"math/rand/v2"
	"time"
)

// Op is a kind of call.
type Op uint8

// The calls of the port. Update stands for the commit: its faults strike when the closure has returned.
const (
	View Op = iota
	Update
	Now
	DropRange
	Get
	BatchGet
	Scan
	Lock
	Put
	Delete
)

var opNames = [...]string{"view", "update", "now", "drop range", "get", "batch get", "scan", "lock", "put", "delete"}

func (o Op) String() string { return opNames[o] }

// Kind is what a fault makes of a call.
type Kind uint8

const (
	// None lets the call pass.
	None Kind = iota
	// Unavailable answers kv.ErrUnavailable and does nothing.
	Unavailable
	// Conflict answers a kv.ConflictError on the first key written or locked. It strikes commits alone.
	Conflict
	// Bound answers kv.ErrBound. It strikes commits with a bound alone.
	Bound
	// UndeterminedLanded commits and answers kv.ErrUndetermined. It strikes commits alone.
	UndeterminedLanded
	// UndeterminedLost commits nothing and answers kv.ErrUndetermined. It strikes commits alone.
	UndeterminedLost
)

// Fault is what befalls one call.
type Fault struct {
	Kind Kind
	// Latency passes before the call, or, for an Update, between its closure and its commit.
	Latency time.Duration
	// Outage, of an Unavailable, takes the whole store away for as long, this call included.
	Outage time.Duration
}

// Call is what a plan decides from.
type Call struct {
	Op Op
	// N counts the calls of this kind, from 0. Concurrent calls are counted as they come.
	N int
	// Keys are those written or locked, for an Update; those read, or the first of the range, otherwise. They must not
	// be changed.
	Keys [][]byte
}

// Plan decides about every call but Put and Delete. It must be safe for concurrent use.
type Plan func(Call) Fault

// Script plans the faults of the first calls of one kind, in order.
func Script(op Op, faults ...Fault) Plan {
	return func(c Call) Fault {
		if c.Op == op && c.N < len(faults) {
			return faults[c.N]
		}
		return Fault{}
	}
}

// First plans the first fault that one of the plans has for a call.
func First(plans ...Plan) Plan {
	return func(c Call) Fault {
		for _, p := range plans {
			if f := p(c); f != (Fault{}) {
				return f
			}
		}
		return Fault{}
	}
}

// Rates are the probabilities, 0 to 1 and at most 1 in all but for Slow, of the faults of one call.
type Rates struct {
	Unavailable, Conflict, Bound, UndeterminedLanded, UndeterminedLost float64
	// Slow is the probability of a latency, beside any fault, up to MaxLatency.
	Slow       float64
	MaxLatency time.Duration
	// Outage is how long an Unavailable lasts for everybody. Zero strikes the one call.
	Outage time.Duration
}

// Seeded plans faults at random. The fault of the nth call of a kind depends on the seed alone.
func Seeded(seed uint64, r Rates) Plan {
	return func(c Call) Fault {
		rng := rand.New(rand.NewPCG(seed, uint64(c.Op)<<48|uint64(c.N)))
		f := Fault{Kind: r.pick(rng.Float64())}
		if f.Kind == Unavailable {
			f.Outage = r.Outage
		}
		if rng.Float64() < r.Slow && r.MaxLatency > 0 {
			f.Latency = time.Duration(rng.Int64N(int64(r.MaxLatency)) + 1)
		}
		return f
	}
}

func (r Rates) pick(x float64) Kind {
	for _, c := range []struct {
		rate float64
		kind Kind
	}{
		{r.Unavailable, Unavailable},
		{r.Conflict, Conflict},
		{r.Bound, Bound},
		{r.UndeterminedLanded, UndeterminedLanded},
		{r.UndeterminedLost, UndeterminedLost},
	} {
		if x < c.rate {
			return c.kind
		}
		x -= c.rate
	}
	return None
}
