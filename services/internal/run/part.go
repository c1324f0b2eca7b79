package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Closer is a part that does nothing until it is stopped, and is then closed: a thing that others rest on.
func Closer(name string, c io.Closer) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return c.Close()
	}}
}

// HTTP is a part that serves a listener. Stopped, it takes no new connection, lets the requests that it has end for at
// most drain, and then cuts the rest off, which is no error. It owns the listener.
func HTTP(name string, server *http.Server, l net.Listener, drain time.Duration) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		select {
		case err := <-ended:
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		case <-ctx.Done():
		}
		return shutdown(server, ended, drain)
	}}
}

func shutdown(server *http.Server, ended <-chan error, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	err := server.Shutdown(ctx)
	if err != nil {
		err = server.Close()
	}
	<-ended
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}
