// Package boot makes a running process of a configuration: it opens what the roles of the process rest on, builds the
// roles, and runs them. It chooses no driver: mains do.
package boot

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"os"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
	"ankusa.dev/services/internal/telemetry"
	"ankusa.dev/services/internal/tune"
)

// Version of the product.
const Version = "0.1.0"

// Exit codes beside 0 and config.ExitCode.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Build opens and binds what a process needs and adds its parts. ctx bounds the building alone. Nothing serves yet.
type Build func(ctx context.Context, p *Process) error

// Main is the whole of a process of one role: it reads the flags, runs until a signal or a failure, and returns the exit
// code.
func Main(role config.Role, arguments []string, build Build) int {
	flags := flag.NewFlagSet(string(role), flag.ContinueOnError)
	path := flags.String("config", "", "path of the configuration file; "+config.DefaultPath+" or ANKUSA_CONFIG when empty")
	version := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(arguments); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(os.Stderr, "%s: takes no arguments, got %q\n", role, flags.Args())
		return exitUsage
	case *version:
		fmt.Println(Version)
		return 0
	}
	ctx, release := run.Signals(context.Background())
	defer release()
	return Run(ctx, role, *path, build, os.Stderr)
}

// Run runs a process of the role until the context is cancelled or a part of it fails, and returns the exit code. What
// it has to say, the log included, goes to out.
func Run(ctx context.Context, role config.Role, path string, build Build, out io.Writer) int {
	tune.Collector()
	hangups, release := run.Hangups()
	defer release()
	env := config.Environment{}
	path = config.Path(path, env)
	c, err := config.Load(path, role, env)
	if err != nil {
		return report(out, err)
	}
	log, err := telemetry.NewLogger(c.Log.Level, telemetry.NewLines(out))
	if err != nil {
		return report(out, err)
	}
	defer func() { _ = log.Sync() }() // the last lines; there is nowhere else to complain
	before := stdlog.Writer()
	stdlog.SetOutput(withheld{log})
	defer stdlog.SetOutput(before)
	if err := newProcess(role, path, c, log).run(ctx, build, hangups); err != nil {
		log.Error("process failed", zap.Error(err))
		return code(err)
	}
	return 0
}

// withheld is where Go's standard logger writes, which libraries use that have been given no other. net/http quotes there
// what a destination sent unasked, and a destination can send a hook back: that something was written is all that is told.
type withheld struct{ log *zap.Logger }

func (w withheld) Write(text []byte) (int, error) {
	w.log.Debug("a library complained; its words are withheld", zap.Int("bytes", len(text)))
	return len(text), nil
}

func report(out io.Writer, err error) int {
	_, _ = fmt.Fprintln(out, err)
	return code(err)
}

// code of a failure: a bad configuration has its own.
func code(err error) int {
	var faults *config.Error
	if errors.As(err, &faults) {
		return config.ExitCode
	}
	return exitFailed
}
