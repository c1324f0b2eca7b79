package scheduler

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
	"ankusa.dev/services/internal/store"
	"ankusa.dev/services/internal/wire"
)

// Notify serves the writers of one process: each message is acknowledged when the core has taken it.
func (s *Scheduler) Notify(stream grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ids, err := wire.ReadWriterHello(first.GetHello())
	if err != nil {
		return malformed(err)
	}
	t, leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if !t.writers.joined(ids) {
		return wire.Error(codes.ResourceExhausted, "too_many_writers", nil)
	}
	defer t.writers.parted(ids)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	acks := &acks{wake: make(chan struct{}, 1)}
	received := make(chan error, 1)
	go func() { received <- t.hear(ctx, stream, newVoucher(t, ids), acks) }()
	sent := make(chan error, 1)
	go func() { sent <- acks.send(ctx, stream) }()
	return t.streamEnd(ctx, received, sent)
}

// maxUntaken bounds the messages of one stream that wait for the loop, so that none keeps the others from it.
const maxUntaken = 4

// hear takes what a writer names. It acknowledges only within the lease: rows that were named then were committed before
// any later leader counts what there is, and are found by it; later ones it alone must be told of.
func (t *term) hear(
	ctx context.Context, stream grpc.BidiStreamingServer[dispatchv1.NotifyRequest, dispatchv1.NotifyResponse], v *voucher, acks *acks,
) error {
	untaken := make(chan struct{}, maxUntaken)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		committed, err := wire.ReadCommitted(m.GetCommitted())
		if err != nil {
			return malformed(err)
		}
		v.sift(ctx, &committed)
		select {
		case untaken <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		took := func(c *core.Core, now hook.Timestamp) {
			<-untaken
			if !t.valid() {
				t.end(errLeaseLapsed)
				return
			}
			c.Notified(now, committed.Groups)
			for _, b := range committed.Backlogs {
				c.Backlog(now, b.Partition, b.Key, b.From, 0, b.Ordered)
			}
			acks.upTo(committed.Sequence)
		}
		if !t.post(took) {
			return errNotLeading()
		}
	}
}

// acks sends the last sequence number that was taken; earlier ones that the stream was too busy for are implied.
type acks struct {
	wake chan struct{}
	mu   sync.Mutex
	last uint64
}

func (a *acks) upTo(sequence uint64) {
	a.mu.Lock()
	a.last = max(a.last, sequence)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *acks) send(ctx context.Context, stream grpc.ServerStreamingServer[dispatchv1.NotifyResponse]) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.wake:
		}
		a.mu.Lock()
		last := a.last
		a.mu.Unlock()
		if err := stream.Send(&dispatchv1.NotifyResponse{Acknowledged: last}); err != nil {
			return err
		}
	}
}

const (
	// writerGrace is how long a writer may be away before what it may have committed and not named is looked for.
	writerGrace = 5 * time.Second
	// writerPeriod is how often the writers' records are looked at.
	writerPeriod = 5 * time.Second
	// maxHere bounds the writers that are connected to a leader.
	maxHere = 16_384
	// maxGone bounds the writers that are remembered while they are away.
	maxGone = 4096
	// writerGone is how long a writer that is not connected may be silent before its counters are folded.
	writerGone = 10 * time.Minute
)

// writers looks for rows that nobody will name: a writer that went away may have committed some, and one that reached
// no leader raised a flag. It also folds the counters of those that are gone for good.
type writers struct {
	term *term
	mu   sync.Mutex
	here map[hook.RunID]int
	gone map[hook.RunID]time.Time
	// crowded is when the last one went away that gone had no place for; zero for none.
	crowded time.Time

	beats  map[hook.RunID]beat // run owns it
	folds  chan hook.RunID     // unbuffered: taken only when no fold is under way
	counts []chan struct{}     // a token: the rows of that partition are to be counted again
}

// beat is what a writer's record said last, and since when.
type beat struct {
	store.WriterRecord
	since time.Time
}

func newWriters(t *term) *writers {
	w := &writers{
		term: t, here: make(map[hook.RunID]int), gone: make(map[hook.RunID]time.Time), beats: make(map[hook.RunID]beat),
		folds: make(chan hook.RunID), counts: make([]chan struct{}, t.scheduler.deps.Store.Partitions()),
	}
	for p := range w.counts {
		w.counts[p] = make(chan struct{}, 1)
	}
	return w
}

// joined says whether there is room for all of the writers; if not, none of them has joined. Those that a leader refuses
// raise their flags, as those do that reach none.
func (w *writers) joined(ids []hook.RunID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	more := 0
	for _, id := range ids {
		if w.here[id] == 0 {
			more++
		}
	}
	if len(w.here)+more > maxHere {
		return false
	}
	for _, id := range ids {
		w.here[id]++
		delete(w.gone, id)
	}
	w.term.scheduler.metrics.writers.Set(float64(len(w.here)))
	return true
}

func (w *writers) parted(ids []hook.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.here[id]--; w.here[id] > 0 {
			continue
		}
		delete(w.here, id)
		if len(w.gone) == maxGone {
			w.crowded = time.Now()
			continue
		}
		w.gone[id] = time.Now()
	}
	w.term.scheduler.metrics.writers.Set(float64(len(w.here)))
}

func (w *writers) connected(id hook.RunID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.here[id] > 0
}

// missing forgets and counts the writers that have been away for longer than the grace. Those that are too many to
// remember count until the grace of the last is over.
func (w *writers) missing() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.crowded.IsZero() {
		n++
		if time.Since(w.crowded) >= writerGrace {
			w.crowded = time.Time{}
		}
	}
	for id, since := range w.gone {
		if time.Since(since) >= writerGrace {
			delete(w.gone, id)
			n++
		}
	}
	return n
}

// run has rows counted again whenever a writer stays away or has raised its flag. It waits for no count: what it finds
// during one is counted after it.
func (w *writers) run(ctx context.Context) {
	for sleep(ctx, writerPeriod) {
		records, err := w.read(ctx)
		if err != nil {
			w.term.log.Warn("writers not readable", zap.Error(err))
			continue
		}
		if n := w.missing() + w.look(records); n > 0 {
			w.term.log.Info("writers away or flagged, counting rows", zap.Int("writers", n))
			w.recount()
		}
		w.offer()
	}
}

// recount asks for a count that begins after now.
func (w *writers) recount() {
	for _, count := range w.counts {
		select {
		case count <- struct{}{}:
		default:
		}
	}
}

func (w *writers) read(ctx context.Context) (records []store.WriterRecord, err error) {
	err = bounded(ctx, keepTimeout, func(ctx context.Context) (err error) {
		records, err = w.term.scheduler.deps.Store.Writers(ctx)
		return err
	})
	return records, err
}

// look remembers the records and counts the flags that were raised since the last look.
func (w *writers) look(records []store.WriterRecord) (raised int) {
	now := make(map[hook.RunID]beat, len(records))
	for _, r := range records {
		last, known := w.beats[r.ID]
		if r.Flagged && !last.Flagged {
			raised++
		}
		if !known || last.WriterRecord != r {
			last = beat{r, time.Now()}
		}
		now[r.ID] = last
	}
	w.beats = now
	return raised
}

// offer names one writer that is gone for folding, if there is one and no other is being folded.
func (w *writers) offer() {
	for id, b := range w.beats {
		if w.connected(id) || time.Since(b.since) < writerGone {
			continue
		}
		select {
		case w.folds <- id:
		default:
		}
		return
	}
}

// fold folds the writers that are offered, apart from the look at flags, which waits for no fold.
func (w *writers) fold(ctx context.Context) {
	for {
		select {
		case id := <-w.folds:
			if err := w.foldOne(ctx, id); err != nil && ctx.Err() == nil {
				w.term.log.Warn("writer's counters not folded", zap.Binary("writer_id", id[:]), zap.Error(err))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (w *writers) foldOne(ctx context.Context, id hook.RunID) error {
	return bounded(ctx, foldTimeout, func(ctx context.Context) error { return w.term.leader.Fold(ctx, id) })
}
