package ferry_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ankusa.dev/ferry"
)

// voyage is one random history of a batcher: who came when, what ran when, and
// what everybody was told.
type voyage struct {
	rng    *rand.Rand
	config ferry.Config[parcel]
	began  time.Time
	closes time.Duration // when Close is called
	grace  time.Duration // what it allows

	mu      sync.Mutex
	inputs  []*passage
	batches []*crossing
	sums    map[ferry.Counter]int64
	reports int
}

// passage is what one input saw.
type passage struct {
	parcel
	arrives, leaves time.Duration // leaves is 0 if it never does
	callback        bool
	answers         int
	out             int
	err             error
	answered        time.Duration
}

// crossing is one call of run.
type crossing struct {
	inputs     []parcel
	start, end time.Duration
	fate       fate
}

type fate int

const (
	fine fate = iota
	failed
	panicked
	exited
	miscounted
)

var errFailed = errors.New("failed")

func newVoyage(seed uint64) *voyage {
	v := &voyage{rng: rand.New(rand.NewPCG(seed, 1)), sums: map[ferry.Counter]int64{}}
	v.config = ferry.Default[parcel]()
	c := &v.config
	c.MaxBatch, c.MaxInFlight = 1+v.rng.IntN(5), 1+v.rng.IntN(3)
	c.MaxQueue = c.MaxBatch + v.rng.IntN(12)
	if v.coin() {
		c.MaxWait = 5 * time.Millisecond
	}
	if v.coin() {
		*c = byFields(*c)
		c.MaxBatchWeight = v.rng.Int64N(2) * 6
		c.MaxQueueWeight = v.rng.Int64N(2) * 30
		c.MaxQueuePerGroup = v.rng.IntN(2) * 5
	}
	c.Metrics = v
	v.closes = v.moment(40)
	v.grace = v.moment(4)
	v.book(10 + v.rng.IntN(50))
	return v
}

func (v *voyage) coin() bool { return v.rng.IntN(2) == 0 }

func (v *voyage) moment(ms int) time.Duration {
	return time.Duration(v.rng.IntN(ms*1000)) * time.Microsecond
}

// book invents the inputs; no two arrive in the same instant, so that ids tell
// the order of admission.
func (v *voyage) book(n int) {
	var arrivals []time.Duration
	for range n {
		arrivals = append(arrivals, v.moment(30))
	}
	slices.Sort(arrivals)
	for id, at := range arrivals {
		p := &passage{arrives: at + time.Duration(id), callback: v.coin()}
		p.parcel = parcel{
			id: id, weight: v.rng.Int64N(5), group: v.pick("a", "b", "c"),
			lane: v.pick("", "", "x", "y"), bin: v.pick("p", "p", "q"),
		}
		if v.rng.IntN(8) == 0 {
			p.weight = 40
		}
		if !p.callback && v.rng.IntN(3) == 0 {
			p.leaves = p.arrives + v.moment(8) + 1
		}
		v.inputs = append(v.inputs, p)
	}
}

func (v *voyage) pick(of ...string) string { return of[v.rng.IntN(len(of))] }

func (v *voyage) now() time.Duration { return time.Since(v.began) }

// Add implements ferry.Metrics.
func (v *voyage) Add(c ferry.Counter, delta int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sums[c] += delta
}

// Observe implements ferry.Metrics.
func (v *voyage) Observe(ferry.BatchReport) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reports++
}

func (v *voyage) run(ctx context.Context, batch []parcel) ([]ferry.Result[int], error) {
	v.mu.Lock()
	c := &crossing{inputs: slices.Clone(batch), start: v.now()}
	v.batches = append(v.batches, c)
	takes := v.moment(4) * time.Duration(v.rng.IntN(2))
	if v.rng.IntN(3) == 0 {
		c.fate = fate(v.rng.IntN(5))
	}
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		c.end = v.now()
		v.mu.Unlock()
	}()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch c.fate {
	case failed:
		return nil, errFailed
	case panicked:
		panic("overboard")
	case exited:
		runtime.Goexit()
	case miscounted:
		return ids(batch)[1:], nil
	}
	return ids(batch), nil
}

// sail plays the history in a bubble.
func (v *voyage) sail(t *testing.T) {
	v.began = time.Now()
	b := mustNew(t, v.config, v.run)
	for _, p := range v.inputs {
		go func() {
			time.Sleep(p.arrives)
			v.board(b, p)
			s := b.Stats()
			if s.Buffered+s.InFlight > v.config.MaxQueue {
				t.Errorf("held %+v above the bound", s)
			}
		}()
	}
	time.Sleep(v.closes)
	ctx, cancel := context.WithTimeout(context.Background(), v.grace)
	defer cancel()
	err := b.Close(ctx)
	if err != nil && !errors.Is(err, ferry.ErrInterrupted) {
		t.Errorf("close: %v", err)
	}
	if n := v.count(ferry.Abandoned); n > 0 && err == nil {
		t.Errorf("close returned nil although %d inputs were not run", n)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	equal(t, "held after close", ferry.Stats{}, b.Stats())
}

func (v *voyage) count(c ferry.Counter) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sums[c]
}

func (v *voyage) board(b *ferry.Batcher[parcel, int], p *passage) {
	told := func(out int, err error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		p.answers++
		p.out, p.err, p.answered = out, err, v.now()
	}
	if p.callback {
		if err := b.Submit(p.parcel, told); err != nil {
			told(0, err)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.leaves > 0 {
		defer time.AfterFunc(p.leaves-p.arrives, cancel).Stop()
	}
	told(b.Do(ctx, p.parcel))
}

// check holds the history against what the batcher guarantees.
func (v *voyage) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	ran := map[int]*crossing{}
	for _, c := range v.batches {
		for _, in := range c.inputs {
			if ran[in.id] != nil {
				fault("input %d ran twice", in.id)
			}
			ran[in.id] = c
		}
		v.checkBatch(c, fault)
	}
	for _, p := range v.inputs {
		if p.answers != 1 {
			fault("input %d has %d answers", p.id, p.answers)
		}
		v.checkAnswer(p, ran[p.id], fault)
	}
	v.checkLanes(ran, fault)
	v.checkSums(fault)
	return errors.Join(faults...)
}

type complain func(format string, args ...any)

func (v *voyage) checkBatch(c *crossing, fault complain) {
	first, weight := c.inputs[0], int64(0)
	for _, in := range c.inputs {
		weight += in.weight
		if v.config.Bin != nil && in.bin != first.bin {
			fault("bins %q and %q share a batch", in.bin, first.bin)
		}
	}
	if len(c.inputs) > v.config.MaxBatch {
		fault("a batch of %d", len(c.inputs))
	}
	limit := v.config.MaxBatchWeight
	if limit > 0 && weight > limit && len(c.inputs) > 1 {
		fault("a batch of weight %d", weight)
	}
	oldest := c.start
	for _, in := range c.inputs {
		p := v.inputs[in.id]
		oldest = min(oldest, p.arrives)
		v.checkWait(p, c, fault)
	}
	alone := len(c.inputs) < v.config.MaxBatch && limit == 0 && c.start < v.closes
	if alone && c.start-oldest < v.config.MaxWait {
		fault("the batch of %d left after %s without need", first.id, c.start-oldest)
	}
}

// checkWait: between its deadline and its batch's start every slot was busy.
func (v *voyage) checkWait(p *passage, c *crossing, fault complain) {
	due := p.arrives + v.config.MaxWait
	if c.start <= due || v.config.Lane != nil && p.lane != "" {
		return
	}
	edges := []time.Duration{due, c.start}
	for _, other := range v.batches {
		for _, at := range []time.Duration{other.start, other.end} {
			if at > due && at < c.start {
				edges = append(edges, at)
			}
		}
	}
	slices.Sort(edges)
	for i := range edges[1:] {
		if edges[i] == edges[i+1] {
			continue
		}
		busy := 0
		for _, other := range v.batches {
			if other.start <= edges[i] && other.end >= edges[i+1] {
				busy++
			}
		}
		if busy < v.config.MaxInFlight {
			fault("input %d, due at %s, waited until %s beside a free slot", p.id, due, c.start)
			return
		}
	}
}

func (v *voyage) checkAnswer(p *passage, c *crossing, fault complain) {
	switch {
	case errors.Is(p.err, context.Canceled) && !errors.Is(p.err, ferry.ErrInterrupted):
		if p.leaves == 0 {
			fault("input %d was told that it left", p.id)
		}
		if c != nil && c.start > p.answered {
			fault("input %d had left and was run", p.id)
		}
	case errors.Is(p.err, ferry.ErrRejected), errors.Is(p.err, ferry.ErrClosed):
		if c != nil {
			fault("input %d ran and was told %v", p.id, p.err)
		}
	case c == nil:
		fault("input %d did not run and was told %v", p.id, p.err)
	case errors.Is(p.err, ferry.ErrInterrupted):
		if c.end < v.closes+v.grace {
			fault("input %d was interrupted early", p.id)
		}
	default:
		v.checkFate(p, c, fault)
	}
}

func (v *voyage) checkFate(p *passage, c *crossing, fault complain) {
	var panicErr *ferry.PanicError
	var countErr *ferry.ResultCountError
	ok := false
	switch c.fate {
	case fine:
		ok = p.err == nil && p.out == p.id
	case failed:
		ok = errors.Is(p.err, errFailed)
	case panicked:
		ok = errors.As(p.err, &panicErr) && panicErr.Value == "overboard"
	case exited:
		ok = errors.Is(p.err, ferry.ErrGoexit)
	case miscounted:
		ok = errors.As(p.err, &countErr)
	}
	if !ok {
		fault("input %d, fate %d: got %d, %v", p.id, c.fate, p.out, p.err)
	}
}

// checkLanes: what ran of a lane ran in order of admission, one batch at a time.
func (v *voyage) checkLanes(ran map[int]*crossing, fault complain) {
	if v.config.Lane == nil {
		return
	}
	last := map[[2]string]*passage{}
	for _, p := range v.inputs {
		c := ran[p.id]
		if c == nil || p.lane == "" {
			continue
		}
		key := [2]string{p.bin, p.lane}
		before := last[key]
		last[key] = p
		if before == nil {
			continue
		}
		switch prior := ran[before.id]; {
		case prior == c && slices.Index(c.inputs, before.parcel) > slices.Index(c.inputs, p.parcel):
			fault("lane %q: %d stands behind %d", p.lane, before.id, p.id)
		case prior != c && c.start < prior.end:
			fault("lane %q: %d began before %d had ended", p.lane, p.id, before.id)
		}
	}
}

func (v *voyage) checkSums(fault complain) {
	out := v.sums[ferry.Succeeded] + v.sums[ferry.Failed] + v.sums[ferry.Left] + v.sums[ferry.Abandoned]
	if v.sums[ferry.Admitted] != out {
		fault("admitted %d, accounted for %d", v.sums[ferry.Admitted], out)
	}
	for _, gauge := range []ferry.Counter{ferry.Buffered, ferry.InFlight, ferry.Running} {
		if v.sums[gauge] != 0 {
			fault("%s ends at %d", gauge, v.sums[gauge])
		}
	}
	all := v.sums[ferry.Admitted] + v.sums[ferry.Rejected] + v.sums[ferry.Refused]
	if all != int64(len(v.inputs)) {
		fault("%d inputs, counted %d", len(v.inputs), all)
	}
	if v.reports != len(v.batches) {
		fault("%d batches, %d reports", len(v.batches), v.reports)
	}
}

func playVoyage(t *testing.T, seed uint64) {
	t.Helper()
	v := newVoyage(seed)
	synctest.Test(t, v.sail)
	if err := v.check(); err != nil {
		t.Fatalf("seed %d, %d slots, batch %d, wait %s:\n%v",
			seed, v.config.MaxInFlight, v.config.MaxBatch, v.config.MaxWait, err)
	}
}

func TestRandomHistoriesKeepEveryGuarantee(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 50
	}
	base := rand.Uint64()
	for i := range n {
		playVoyage(t, base+uint64(i))
		if t.Failed() {
			return
		}
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(playVoyage)
}
