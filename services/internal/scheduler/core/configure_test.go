package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/hook"
)

func TestAnotherLimitOnlyStopsOrAllowsTheNextStart(t *testing.T) {
	for name, set := range map[string]func(*Config, int){
		"concurrency":      func(c *Config, n int) { c.Concurrency = n },
		"of a sink":        func(c *Config, n int) { c.SinkConcurrency = n },
		"of every tenant":  func(c *Config, n int) { c.Default.Concurrency = n },
		"of one tenant":    func(c *Config, n int) { c.Tenants = map[string]Limits{"t": {1000, 1 << 30, n}} },
		"window":           func(c *Config, n int) { c.MaxInflight = n },
		"window of one":    func(c *Config, n int) { c.Tenants = map[string]Limits{"t": {n, 1 << 30, 100}} },
		"bytes":            func(c *Config, n int) { c.MaxInflightBytes = int64(n) * 10 },
		"bytes of one":     func(c *Config, n int) { c.Tenants = map[string]Limits{"t": {1000, int64(n) * 10, 100}} },
		"window of others": func(c *Config, n int) { c.Default.MaxInflight = n },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { set(c, 4); c.SinkConcurrency = max(c.SinkConcurrency, 4) })
			r.join(1, 100)
			r.accept(sink("t", "a"), 30, 10)
			require.Equal(t, 4, r.running())
			r.configure(func(c *Config) { c.SinkConcurrency = 100; set(c, 9) })
			require.Equal(t, 9, r.running(), "more start at once")
			r.epoch++ // what runs stays, whatever the windows say
			r.configure(func(c *Config) { set(c, 2) })
			require.Equal(t, 9, r.running(), "nothing that runs is dropped")
			for left := 8; left >= 2; left-- {
				r.first(hook.Delivered)
				require.Equal(t, max(left, 2), r.running(), "until the count is below the limit, none starts")
			}
			require.Empty(t, r.drops)
			r.epoch--
			r.finish(time.Minute)
			require.Empty(t, r.rows)
			r.idle()
		})
	}
}
