// Command tikvmock serves a TiKV cluster for tests: the client's mock of TiKV beside a small PD, on one port. It
// prints one line of JSON with the address to give to clients as PD's, and ends on SIGTERM or SIGINT.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"ankusa.dev/services/internal/kv/tikv/tikvmock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "tikvmock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var c tikvmock.Config
	flags := flag.NewFlagSet("tikvmock", flag.ContinueOnError)
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:0", "TCP address; port 0 is any free one")
	flags.StringVar(&c.Advertise, "advertise", "", "address that clients are sent to, where a proxy stands between; the listener's if empty")
	flags.StringVar(&c.Path, "path", "", "directory that keeps the data; nothing is kept if empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := tikvmock.Open(c)
	if err != nil {
		return err
	}
	pd := c.Advertise
	if pd == "" {
		pd = s.Addr()
	}
	if err := json.NewEncoder(out).Encode(map[string]string{"pd": pd, "listen": s.Addr()}); err != nil {
		return err
	}
	return s.Run(ctx)
}
