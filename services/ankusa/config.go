package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ankusa.dev/services/internal/boot"
	"ankusa.dev/services/internal/config"
)

func load(path string) (config.Config, error) {
	env := config.Environment{}
	return config.Load(config.Path(path, env), config.RoleAll, env)
}

func newCheckConfig(path *string) *cobra.Command {
	return &cobra.Command{
		Use: "check-config", Short: "Check the configuration and say what it would run", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := load(*path)
			if err != nil {
				return err
			}
			return summarize(c.OutOrStdout(), loaded)
		},
	}
}

func summarize(w io.Writer, c config.Config) error {
	sources := make([]string, len(c.Sources))
	for i, s := range c.Sources {
		sources[i] = s.ID()
	}
	where := c.Store.Dir
	if c.Store.Type == config.StoreTiKV {
		where = strings.Join(c.Store.PD, ", ")
	}
	_, err := fmt.Fprintf(w, "roles: %s\nsources: %s\nstore: %s (%s)\n", strings.Join(boot.Roles(c), ", "), orNone(sources),
		c.Store.Type, where)
	return err
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func newPrintConfig(path *string) *cobra.Command {
	return &cobra.Command{
		Use: "print-config", Short: "Print the configuration at work as JSON, secrets redacted", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := load(*path)
			if err != nil {
				return err
			}
			text, err := loaded.JSON()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), string(text))
			return err
		},
	}
}
