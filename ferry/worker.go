package ferry

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"ankusa.dev/ferry/internal/queue"
)

// chunk is how many inputs are taken in one go with the lock held.
const chunk = 64

// stage is what a worker is doing. It tells a successor where to go on when
// the caller's code has ended the goroutine.
type stage uint8

const (
	forming stage = iota
	running
	answering
)

// worker is one batch slot. It owns what is in batch until it has answered it.
type worker[In, Out any] struct {
	stage    stage
	batch    queue.Batch
	inputs   []In
	began    time.Duration // when run was called
	results  []Result[Out]
	err      error // for all of them
	answered int   // of batch.Nodes
}

// work forms and runs batches until there is nothing left to do.
func (b *Batcher[In, Out]) work(w *worker[In, Out]) {
	defer b.end(w)
	switch w.stage {
	case running:
		b.finish(w, nil, &PanicError{Value: ErrGoexit})
	case answering:
		b.answerAll(w)
	}
	for b.form(w) {
		b.execute(w)
	}
}

// end is deferred by work. Anywhere but in forming it means that run or a
// callback has ended the goroutine: another goes on for it.
func (b *Batcher[In, Out]) end(w *worker[In, Out]) {
	if w.stage != forming {
		go b.work(w)
		return
	}
	b.mu.Lock()
	b.workers--
	last := b.workers == 0
	b.mu.Unlock()
	if last {
		b.cancel(nil)
		close(b.ended)
	}
}

// form fills w's batch, alone among the workers. False means that no batch will
// ever come.
func (b *Batcher[In, Out]) form(w *worker[In, Out]) bool {
	b.forming <- struct{}{}
	defer func() { <-b.forming }()
	for {
		more, over := b.first(w)
		if over {
			return false
		}
		for more {
			more = b.next(w)
		}
		if size := len(w.batch.Nodes); size > 0 {
			b.company = size > 1
			return true
		}
	}
}

// first waits until a batch is due and takes its first chunk. While there is
// company it lets others run before it looks: callers who are about to come
// would each have a batch of one otherwise. A lone caller does not pay for it.
func (b *Batcher[In, Out]) first(w *worker[In, Out]) (more, over bool) {
	for {
		if b.company {
			runtime.Gosched()
		}
		b.mu.Lock()
		now := b.now()
		if b.closed && b.queue.Buffered() == 0 {
			b.mu.Unlock()
			return false, true
		}
		if b.queue.Ready(now) {
			more = b.takeChunk(w, now)
			b.mu.Unlock()
			return more, false
		}
		b.asleep, b.alarm = true, b.queue.Deadline()
		alarm := b.alarm
		b.mu.Unlock()
		b.sleep(alarm, now)
	}
}

// next takes another chunk of a batch that is not full.
func (b *Batcher[In, Out]) next(w *worker[In, Out]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeChunk(w, b.now())
}

// takeChunk takes and owns in one step: the lock is held.
func (b *Batcher[In, Out]) takeChunk(w *worker[In, Out], now time.Duration) bool {
	more := b.queue.Take(&w.batch, chunk)
	if !more {
		b.queue.Seal(&w.batch, now)
	}
	return more
}

// sleep returns at the alarm, when roused, or for no reason.
func (b *Batcher[In, Out]) sleep(alarm, now time.Duration) {
	if alarm == queue.Never {
		<-b.wake
		return
	}
	b.timer.Reset(alarm - now)
	select {
	case <-b.wake:
		b.timer.Stop()
	case <-b.timer.C:
		b.mu.Lock()
		b.asleep = false
		b.mu.Unlock()
	}
}

// execute runs w's batch and answers everybody in it.
func (b *Batcher[In, Out]) execute(w *worker[In, Out]) {
	for _, n := range w.batch.Nodes {
		w.inputs = append(w.inputs, n.Owner.(*call[In, Out]).in)
	}
	size := len(w.batch.Nodes)
	b.count(Buffered, -size)
	b.count(InFlight, size)
	b.count(Running, 1)
	if b.ctx.Err() != nil {
		b.abandon(w)
		return
	}
	w.began = b.now()
	w.stage = running
	results, err := b.guard(w.inputs)
	b.finish(w, results, err)
}

// abandon answers a batch that was taken just before an interruption.
func (b *Batcher[In, Out]) abandon(w *worker[In, Out]) {
	size := len(w.batch.Nodes)
	b.mu.Lock()
	b.queue.Finish(&w.batch)
	b.lost += size
	b.mu.Unlock()
	b.count(Abandoned, size)
	b.count(InFlight, -size)
	b.count(Running, -1)
	w.results, w.err = nil, ErrClosed
	b.answerAll(w)
}

// guard calls run and turns what a program may not do into an error.
func (b *Batcher[In, Out]) guard(inputs []In) (results []Result[Out], err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil { // nil: Goexit
			results, err = nil, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	results, err = b.run(b.ctx, inputs)
	returned = true
	switch {
	case err != nil && b.ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	case err == nil && len(results) != len(inputs):
		err = &ResultCountError{Got: len(results), Want: len(inputs)}
	}
	return results, err
}

// finish makes room for others before it answers, so that a caller who comes
// back at once is not rejected for the room that it held itself.
func (b *Batcher[In, Out]) finish(w *worker[In, Out], results []Result[Out], err error) {
	w.results, w.err = results, err
	b.mu.Lock()
	b.queue.Finish(&w.batch)
	b.mu.Unlock()
	if b.config.Metrics != nil {
		b.report(w)
	}
	b.answerAll(w)
}

// answerAll answers what is left of w's batch, and only then frees its lanes,
// so that a lane's answers are in order too.
func (b *Batcher[In, Out]) answerAll(w *worker[In, Out]) {
	w.stage = answering
	for w.answered < len(w.batch.Nodes) {
		i := w.answered
		w.answered++
		r := Result[Out]{Err: w.err}
		if w.err == nil {
			r = w.results[i]
		}
		b.answer(w.batch.Nodes[i].Owner.(*call[In, Out]), r)
	}
	if w.batch.HasLanes() {
		b.release(w)
	}
	w.batch.Reset()
	clear(w.inputs)
	w.inputs, w.results, w.err, w.answered = w.inputs[:0], nil, nil, 0
	w.stage = forming
}

func (b *Batcher[In, Out]) release(w *worker[In, Out]) {
	now := b.now()
	b.mu.Lock()
	b.queue.Release(&w.batch, now)
	wake := b.stir()
	b.mu.Unlock()
	if wake {
		b.rouse()
	}
}
