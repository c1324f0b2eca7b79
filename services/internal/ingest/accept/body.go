package accept

import (
	"errors"
	"io"
)

// Sizes of body buffers: what a request may hold uncounted, and the most that is read at once.
const (
	freeBody  = 8 << 10
	maxGrowth = 1 << 20
)

// ErrBodyTooLarge and ErrNoRoom end the reading of a body: it is above the cap, or all bodies that are being read are
// together above theirs.
var (
	ErrBodyTooLarge = errors.New("body above the cap")
	ErrNoRoom       = errors.New("no room for more bodies")
)

// Body is a request's body as far as it was read. Its buffer grows with what has arrived, never with what was announced.
// Release it when nobody looks at the bytes any more.
type Body struct {
	Bytes  []byte
	budget *budget
	held   int64
}

// ReadBody reads a body to its end. announced is its length, or -1 where that is not known. progress, which may be nil,
// is told after every read that did not end the body how much there is, and can end the reading with an error.
func (a *Acceptor) ReadBody(r io.Reader, announced int64, progress func(n int) error) (Body, error) {
	b := Body{budget: &a.reading}
	size := freeBody
	if announced >= 0 {
		size = int(min(announced+1, freeBody)) // one more byte, so that the end shows without another read
	}
	b.Bytes = make([]byte, 0, size)
	for {
		n, err := r.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		if len(b.Bytes) > a.config.MaxBodyBytes {
			return b, ErrBodyTooLarge
		}
		if errors.Is(err, io.EOF) || err == nil && int64(len(b.Bytes)) == announced {
			return b, nil
		}
		if err == nil && progress != nil {
			err = progress(len(b.Bytes))
		}
		if err == nil && len(b.Bytes) == cap(b.Bytes) {
			err = b.grow()
		}
		if err != nil {
			return b, err
		}
	}
}

// grow doubles the buffer, up to 1 MiB at once.
func (b *Body) grow() error {
	more := min(cap(b.Bytes), maxGrowth)
	if !b.budget.take(int64(more)) {
		return ErrNoRoom
	}
	b.held += int64(more)
	grown := make([]byte, len(b.Bytes), cap(b.Bytes)+more)
	copy(grown, b.Bytes)
	b.Bytes = grown
	return nil
}

// Release gives the body's part of the budget back.
func (b *Body) Release() {
	if b.held > 0 {
		b.budget.give(b.held)
		b.held = 0
	}
}

// HoldBody counts a body that has been received whole by other means than ReadBody, or fails with ErrNoRoom.
func (a *Acceptor) HoldBody(received []byte) (Body, error) {
	b := Body{Bytes: received, budget: &a.reading}
	more := int64(max(0, len(received)-freeBody))
	if !b.budget.take(more) {
		return Body{}, ErrNoRoom
	}
	b.held = more
	return b, nil
}

// BodyReader reads bodies within the cap and the room for them.
type BodyReader interface {
	ReadBody(r io.Reader, announced int64, progress func(n int) error) (Body, error)
}
