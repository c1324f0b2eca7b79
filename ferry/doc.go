// Package ferry coalesces concurrent calls into batches and never loses a
// caller: each gets a result, an error, or its own context's end, exactly once.
//
//	b, err := ferry.New(config, run)     // starts one worker per batch slot
//	out, err := b.Do(ctx, in)            // waits for the answer
//	err = b.Submit(in, func(Out, error)) // admits or rejects at once, no goroutine
//	stats := b.Stats()                   // gauges
//	err = b.Close(ctx)                   // drains, until ctx ends
//
// # Admission
//
// An input is admitted or rejected at once; nobody waits for room. A
// [RejectedError] names the bound. Every queue bound, by count and by weight, in
// all and per group, counts what is buffered plus what is in flight. An input
// that is heavier than a weight bound is admitted when nothing else is held
// under that bound, and keeps everything else out until it is done.
//
// # Batches
//
// Up to MaxInFlight batches run at once, each in a slot of its own. One slot at
// a time forms a batch, so that company is never split between two idle slots.
// A batch leaves when it is full, when its oldest input has waited for MaxWait,
// or, while closing, at once. The wait counts from the input's admission and
// never starts again: what waited for a slot leaves as soon as one is free. With
// a MaxWait of zero a batch is whatever is there when a slot frees: group
// commit. An input that is heavier than MaxBatchWeight runs alone.
//
// Config.Bin keeps inputs apart that must not share a batch. Within a bin,
// groups are taken by turns, one input each, and the turn goes on from batch to
// batch. Within a group inputs are taken in order of admission. Inputs of one
// lane (in one bin) keep their order, whatever their groups, and are never in
// two batches at once; several may be in one batch.
//
// # Answers
//
// run answers per input or for the whole batch. If it panics, every caller of
// that batch gets the *[PanicError]; a wrong number of results is a
// *[ResultCountError] for all of them; both match [ErrDefect]. Neither stops the
// batcher or touches another batch.
//
// A caller whose context ends before its input is taken is left out of the
// batch and frees its place at once. After that the input runs, and its answer
// is dropped.
//
// # Closing
//
// Close stops admission, makes every batch leave at once and waits. When its
// context ends first it cancels the context of run and answers what has not been
// taken with [ErrClosed]; what runs is answered by run. Close returns only when
// all goroutines have ended, so a run that ignores its context holds Close up.
// Close must not be called from run or from a callback.
//
// No lock is held while code of the caller runs. Goroutines of the batcher
// block on channels alone, so it can be used within testing/synctest.
package ferry
