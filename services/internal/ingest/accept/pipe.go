package accept

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ankusa.dev/ferry"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/kv"
	"ankusa.dev/services/internal/store"
)

// errStale: the hook waited for longer than the start deadline.
var errStale = errors.New("waited too long for its commit to start")

// record is one hook on its way to its commit.
type record struct {
	hook      hook.Hook
	incoming  store.Incoming
	partition uint8
	at        time.Time
	size      int64
}

type batcher = ferry.Batcher[*record, Result]

// pipes are the batchers of the partitions in use.
type pipes struct {
	list     [256]atomic.Pointer[batcher]
	epoch    time.Time
	failedAt atomic.Int64 // of the last failed commit, since epoch; 0 for none

	mu     sync.Mutex
	closed bool
}

// pipe returns the batcher of a partition and starts it at its first use.
func (a *Acceptor) pipe(partition uint8) (*batcher, error) {
	if b := a.pipes.list[partition].Load(); b != nil {
		return b, nil
	}
	a.pipes.mu.Lock()
	defer a.pipes.mu.Unlock()
	if b := a.pipes.list[partition].Load(); b != nil || a.pipes.closed {
		return b, closedError(b)
	}
	c := a.config
	p := &pipe{acceptor: a, partition: partition, free: newSlots(a.deps.Writers)}
	b, err := ferry.New(ferry.Config[*record]{
		MaxBatch: c.MaxBatch, MaxBatchWeight: c.MaxBatchBytes, MaxWait: c.MaxDelay, MaxInFlight: len(a.deps.Writers),
		MaxQueue: c.MaxQueue, MaxQueueWeight: c.MaxQueueBytes,
		Weight: func(r *record) int64 { return r.size },
		Lane:   dedupeLane,
		Group:  func(r *record) string { return r.hook.Tenant },
	}, p.run)
	if err == nil {
		a.pipes.list[partition].Store(b)
	}
	return b, err
}

// dedupeLane keeps hooks of one dedupe key out of commits that run at once, of which all but one would be in vain.
func dedupeLane(r *record) (string, bool) {
	h := &r.hook
	if h.DedupeKey == "" {
		return "", false
	}
	return h.Tenant + "\x00" + h.SourceID + "\x00" + h.DedupeKey, true
}

func closedError(b *batcher) error {
	if b == nil {
		return ferry.ErrClosed
	}
	return nil
}

func (p *pipes) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(p.list))
	for i := range p.list {
		if b := p.list[i].Load(); b != nil {
			wg.Go(func() { errs[i] = b.Close(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *pipes) held() (count int, weight int64) {
	for i := range p.list {
		if b := p.list[i].Load(); b != nil {
			s := b.Stats()
			count, weight = count+s.Buffered+s.InFlight, weight+s.Weight
		}
	}
	return count, weight
}

// pipe commits the batches of one partition.
type pipe struct {
	acceptor  *Acceptor
	partition uint8
	free      *slots
}

// run's results outlive the slot: they are read after the next batch has begun in it.
func (p *pipe) run(ctx context.Context, batch []*record) ([]ferry.Result[Result], error) {
	s := p.free.take()
	defer p.free.give(s)
	results := make([]ferry.Result[Result], len(batch))
	p.begin(s, batch, results)
	if len(s.incoming) == 0 {
		return results, nil
	}
	accepted, groups, err := p.commit(ctx, s)
	p.acceptor.deps.Notifier.Committed(groups) // of an earlier commit, too, that was found to have landed
	if err != nil {
		for _, i := range s.places {
			results[i].Err = err
		}
		return results, nil
	}
	for n, i := range s.places {
		results[i] = resultOf(batch[i], accepted[n])
	}
	return results, nil
}

// begin sorts out what has waited too long.
func (p *pipe) begin(s *slot, batch []*record, results []ferry.Result[Result]) {
	now := time.Now()
	for i, r := range batch {
		if now.Sub(r.at) > p.acceptor.config.StartDeadline {
			results[i].Err = errStale
			continue
		}
		s.incoming, s.places = append(s.incoming, r.incoming), append(s.places, i)
	}
}

func (p *pipe) commit(ctx context.Context, s *slot) ([]store.Accepted, []hook.Group, error) {
	a := p.acceptor
	began := time.Now()
	known := false
	defer func() { // a panic of the writer leaves the fate of the batch unknown, too
		if !known {
			p.uncertain(s)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, a.config.CommitTimeout)
	defer cancel()
	accepted, groups, err := s.writer.Commit(ctx, p.partition, s.incoming)
	known = decided(accepted, err)
	a.metrics.commit.Observe(time.Since(began).Seconds())
	if err != nil {
		a.pipes.failedAt.Store(max(1, int64(time.Since(a.pipes.epoch))))
		return nil, groups, err
	}
	a.metrics.hooks.Add(float64(len(s.incoming)))
	return accepted, groups, nil
}

// decided says whether the fate of every hook of a commit is known.
func decided(accepted []store.Accepted, err error) bool {
	if err != nil {
		return notStored(err)
	}
	return !slices.ContainsFunc(accepted, func(a store.Accepted) bool { return errors.Is(a.Err, kv.ErrUndetermined) })
}

// notStored says whether an error of a commit rules out that it landed.
func notStored(err error) bool {
	if errors.Is(err, kv.ErrUndetermined) {
		return false
	}
	for _, kind := range []error{kv.ErrUnavailable, kv.ErrBound, kv.ErrConflict, kv.ErrTooLarge} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// uncertain has the leader look for rows that may have landed without being named.
func (p *pipe) uncertain(s *slot) {
	seen := map[store.Binding]bool{}
	var list []store.Binding
	for i := range s.incoming {
		for _, b := range s.incoming[i].Bindings {
			if b.Lane = ""; !seen[b] { // a batch may span the change of a sink to an ordered one
				seen[b] = true
				list = append(list, b)
			}
		}
	}
	p.acceptor.deps.Notifier.Uncertain(p.partition, list)
}

func resultOf(r *record, a store.Accepted) ferry.Result[Result] {
	switch {
	case errors.Is(a.Err, store.ErrSourceChanged):
		// No error for the batcher: the caller judges the request anew.
		return ferry.Result[Result]{Value: Result{Kind: StoreUnavailable, Err: a.Err}}
	case a.Err != nil:
		return ferry.Result[Result]{Err: a.Err}
	case a.Duplicate != nil:
		return ferry.Result[Result]{Value: Result{Kind: Duplicate, ID: *a.Duplicate}}
	default:
		return ferry.Result[Result]{Value: Result{Kind: Committed, ID: r.hook.ID}}
	}
}

func (a *Acceptor) registerGauges(r prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("ankusa_ingest_queue_hooks", "Hooks that wait for their commit or are in it.", func() float64 {
		count, _ := a.pipes.held()
		return float64(count)
	})
	gauge("ankusa_ingest_queue_bytes", "Bytes of those hooks.", func() float64 {
		_, weight := a.pipes.held()
		return float64(weight)
	})
	gauge("ankusa_ingest_reading_bytes", "Bytes that bodies take beyond 8 KiB each.", func() float64 {
		return float64(a.reading.held.Load())
	})
	gauge("ankusa_ingest_sources_cached", "Sources in the cache.", func() float64 {
		sources, _ := a.cache.Len()
		return float64(sources)
	})
}
