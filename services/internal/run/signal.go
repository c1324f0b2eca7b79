package run

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals returns a context that SIGINT and SIGTERM cancel. From the first of them on, the next one ends the process at
// once, as if nothing handled it. release frees what Signals holds.
func Signals(parent context.Context) (ctx context.Context, release func()) {
	ctx, restore := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	return ctx, restore
}

// Hangups returns a channel that gets SIGHUP, of which several that nobody has taken are one. release lets the signal end
// the process again.
func Hangups() (hangups <-chan os.Signal, release func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
