package boot

import (
	"context"
	"errors"
	"os"
	"sync"

	"go.uber.org/zap"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
)

// reloading reads the process's file again, for whoever asks, and hands on what can change.
type reloading struct {
	path string
	role config.Role
	log  *zap.Logger

	mu      sync.Mutex
	at      config.Config // what is at work
	follows []func(config.Config)
}

// OnReload has a part of the process take over a new configuration. Only the keys that follow a reload differ from the
// one before. It is for the building of the process.
func (p *Process) OnReload(take func(config.Config)) {
	p.reloading.follows = append(p.reloading.follows, take)
}

// Reload reads the configuration file again. It returns the dotted keys whose new values are at work, and those whose new
// values wait for a restart. A bad file changes nothing; the error is then a *config.Error, and has been logged.
func (p *Process) Reload() (applied, restart []string, err error) { return p.reloading.reload() }

func (r *reloading) reload() (applied, restart []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := config.LoadAgain(r.path, r.role, config.Environment{})
	if err != nil {
		r.complain(err)
		return nil, nil, err
	}
	applied, restart = r.at.Changes(next)
	if len(r.follows) == 0 { // nothing here heeds what could follow
		applied, restart = nil, append(restart, applied...)
	}
	if len(applied) > 0 {
		r.at = r.at.Following(next)
		for _, take := range r.follows {
			take(r.at)
		}
	}
	r.log.Info("configuration read again", zap.Strings("applied", applied), zap.Strings("after_restart", restart))
	return applied, restart, nil
}

// complain logs every fault by itself.
func (r *reloading) complain(err error) {
	var faults *config.Error
	if !errors.As(err, &faults) {
		r.log.Error("configuration not read again", zap.Error(err))
		return
	}
	for _, f := range faults.Faults {
		r.log.Error("configuration not read again: nothing changes", zap.String("path", faults.Path), zap.Int("line", f.Line), zap.Stringer("fault", f))
	}
}

// part reloads on every hang-up.
func (r *reloading) part(hangups <-chan os.Signal) run.Part {
	return run.Part{Name: "reload", Run: func(ctx context.Context) error {
		for {
			select {
			case <-hangups:
				_, _, _ = r.reload() // it has said what there is to say
			case <-ctx.Done():
				return nil
			}
		}
	}}
}
