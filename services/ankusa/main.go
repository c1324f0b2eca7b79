// Command ankusa is the whole product in one process, and the operator's tool.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs a command line and returns the exit code.
func execute(arguments []string) int {
	ctx, release := run.Signals(context.Background())
	defer release()
	root := newRoot()
	root.SetArgs(arguments)
	return report(root.ExecuteContext(ctx), os.Stderr)
}

// report says what a command returned, unless it has been said, and gives the exit code.
func report(err error, w io.Writer) int {
	var silent exitError
	if err != nil && !errors.As(err, &silent) {
		_, _ = fmt.Fprintln(w, err)
	}
	return exitCode(err)
}

// exitCode of what a command returned.
func exitCode(err error) int {
	var silent exitError
	var faults *config.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &silent):
		return int(silent)
	case errors.As(err, &faults):
		return config.ExitCode
	default:
		return exitUsage
	}
}

// Exit codes beside 0 and config.ExitCode.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDiffers = 3
)

// exitError ends the process with a code; what there is to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "ankusa", Short: "A durable webhook receiver and dispatcher",
		SilenceUsage: true, SilenceErrors: true,
	}
	var path string
	root.PersistentFlags().StringVar(&path, "config", "",
		"path of the configuration file; "+config.DefaultPath+" or ANKUSA_CONFIG when empty")
	root.AddCommand(newServe(&path), newCheckConfig(&path), newPrintConfig(&path), newVersion(), newApply())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), boot.Version)
			return err
		},
	}
}
