package run

import (
	"context"
	"io"
)

// Closer is a part that does nothing until it is stopped, and is then closed: a thing that others rest on.
func Closer(name string, c io.Closer) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return c.Close()
	}}
}
