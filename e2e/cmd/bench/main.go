// Command bench measures the product. It runs the benchmarks that are named, or all, and prints one line of JSON for
// each on standard output; docs/performance.md explains them. Progress goes to standard error.
//
//	bench [-repeat 5] [-keep] [NAME...]
//
// The same program is the load, the receivers and the opponents, as processes of their own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"ankusa.dev/e2e/internal/bench"
	"ankusa.dev/e2e/internal/harness"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(args) == 3 && args[0] == "child" {
		return bench.Child(ctx, args[1], args[2], os.Stdout)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	repeat := flags.Int("repeat", 5, "how often each side is measured")
	keep := flags.Bool("keep", false, "keep the logs and stores, and say where they are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *repeat < 1 {
		return errors.New("-repeat must be at least 1")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ankusa-bench-")
	if err != nil {
		return err
	}
	if *keep {
		fmt.Fprintln(os.Stderr, "bench: files are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	bin, err := harness.Build(ctx, filepath.Join(dir, "bin"))
	if err != nil {
		return err
	}
	return bench.Run(ctx, &bench.Rig{Self: self, Bin: bin, Dir: dir, Repeat: *repeat, Log: os.Stderr}, flags.Args(), os.Stdout)
}
