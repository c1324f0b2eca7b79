package scheduler

import (
	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/scheduler/core"
)

// live is the settings that can change while a scheduler runs, as they are now.
type live struct {
	core  core.Config
	retry hook.RetryPolicy
}

// Reconfigure takes over of a configuration what can change without a restart: the windows, the caps on attempts at once,
// those of tenants, the breakers and the retry policy. A leader heeds it at once, a standby when it comes to lead. Nothing
// that is claimed or runs is dropped; a lower limit only stops the next start. Rows follow the policy from when they are
// read next.
func (s *Scheduler) Reconfigure(cfg Config) {
	s.reconfiguring.Lock()
	defer s.reconfiguring.Unlock()
	next := *s.live.Load()
	next.retry = cfg.Retry
	next.core.MaxInflight, next.core.MaxInflightBytes = cfg.Core.MaxInflight, cfg.Core.MaxInflightBytes
	next.core.Concurrency, next.core.SinkConcurrency = cfg.Core.Concurrency, cfg.Core.SinkConcurrency
	next.core.Breakers = cfg.Core.Breakers
	next.core.Default, next.core.Tenants = cfg.Core.Default, cfg.Core.Tenants
	s.live.Store(&next)
	if t := s.term.Load(); t != nil {
		t.configure(&next)
	}
}

// configure gives the loop other settings.
func (t *term) configure(l *live) {
	t.post(func(c *core.Core, now hook.Timestamp) { c.Configure(now, l.core) })
}
