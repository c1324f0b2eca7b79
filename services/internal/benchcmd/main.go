// Command benchcmd measures the scheduler by its inside. It runs the benchmarks that are named, or all, and prints one
// line of JSON for each on standard output; docs/performance.md explains them. Progress goes to standard error.
//
//	bench-scheduler [-repeat 5] [-scale 1] [-dir DIR] [-cpuprofile FILE] [NAME...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"ankusa.dev/services/internal/benchcmd/bench"
	"ankusa.dev/services/internal/tune"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("bench-scheduler", flag.ContinueOnError)
	repeat := flags.Int("repeat", 5, "how often each side is measured")
	scale := flags.Int("scale", 1, "divides the numbers of rows, for trying out")
	parent := flags.String("dir", "", "directory for the stores; that of temporary files if empty")
	profile := flags.String("cpuprofile", "", "file for a profile of the first measured run")
	list := flags.Bool("list", false, "print the names of the benchmarks")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		fmt.Println(strings.Join(bench.Names(), "\n"))
		return nil
	}
	if *repeat < 1 || *scale < 1 {
		return errors.New("-repeat and -scale must be at least 1")
	}
	tune.Collector()
	tune.Processors()
	dir, err := os.MkdirTemp(*parent, "ankusa-bench-scheduler-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rig := bench.NewRig(dir, os.Stderr)
	rig.Repeat, rig.Scale, rig.Profile = *repeat, *scale, *profile
	return bench.Run(ctx, rig, flags.Args(), os.Stdout)
}
