package ferry

import "ankusa.dev/ferry/internal/queue"

// call is one input on its way. It belongs to whoever must act next: the caller
// until admission, the queue, the worker or Close that took it, and from the
// answer on the caller again. One that a caller leaves while a worker has it is
// not reused.
type call[In, Out any] struct {
	node     queue.Node
	in       In
	out      Out
	err      error
	callback func(Out, error)
	answered chan struct{} // room for one, so that an answer never waits
}

func (b *Batcher[In, Out]) call(in In, callback func(Out, error)) *call[In, Out] {
	c, _ := b.calls.Get().(*call[In, Out])
	if c == nil {
		c = &call[In, Out]{answered: make(chan struct{}, 1)}
		c.node.Owner = c
	}
	c.in, c.callback = in, callback
	return c
}

// recycle drops what c refers to and keeps the rest for another call.
func (b *Batcher[In, Out]) recycle(c *call[In, Out]) {
	var in In
	var out Out
	c.in, c.out, c.err, c.callback = in, out, nil, nil
	b.calls.Put(c)
}

// take returns the answer to the caller that was waiting for it.
func (b *Batcher[In, Out]) take(c *call[In, Out]) (Out, error) {
	out, err := c.out, c.err
	b.recycle(c)
	return out, err
}

// answer completes c, which must not be touched afterwards. It is called once
// per admitted call, by its owner.
func (b *Batcher[In, Out]) answer(c *call[In, Out], r Result[Out]) {
	if c.callback == nil {
		c.out, c.err = r.Value, r.Err
		c.answered <- struct{}{}
		return
	}
	callback := c.callback
	b.recycle(c)
	callback(r.Value, r.Err)
}
