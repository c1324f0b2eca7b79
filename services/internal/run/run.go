// Package run lives for as long as a process does: it starts its parts, stops all of them when one fails or a stop is
// asked for, and gives each the time to end in order.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Part is one long-lived piece of a process.
type Part struct {
	// Name for logs and errors.
	Name string
	// Run works until its context is cancelled; then it stops what it takes in, ends what it has begun, and returns
	// when all its goroutines have ended. A return before that, nil included, stops the process.
	Run func(ctx context.Context) error
}

// ErrEnded: a part returned although nobody had asked it to stop.
var ErrEnded = errors.New("ended on its own")

// StuckError names parts that had not ended when the time for stopping was over. Their goroutines still run.
type StuckError struct {
	Parts []string
	After time.Duration
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("%s did not stop within %s", strings.Join(e.Parts, ", "), e.After)
}

// Parts runs the parts until the context is cancelled or one of them returns, then stops them one after the other, the
// last one first, so that what takes work in comes last in the list and what the others rest on comes first. All stops
// together may take the timeout; past it every part is told to stop at once, and those that have not ended a tenth of
// the timeout later are left behind and named by a *StuckError. The result joins the errors of all parts; it is nil
// after a stop in order.
func Parts(ctx context.Context, log *zap.Logger, timeout time.Duration, parts ...Part) error {
	s := &supervisor{log: log, timeout: timeout, ended: make(chan int, len(parts))}
	for i, p := range parts {
		s.start(ctx, i, p)
	}
	select {
	case <-ctx.Done():
	case i := <-s.ended:
		s.parts[i].gone = true
	}
	s.stop()
	return s.result(ctx)
}

type supervisor struct {
	log     *zap.Logger
	timeout time.Duration
	parts   []*running
	ended   chan int
}

type running struct {
	Part
	cancel context.CancelFunc
	// asked is written before cancel, err before the part's number goes into ended; gone belongs to the supervisor.
	asked, gone bool
	err         error
}

// start detaches the part from the cancellation of ctx, as the order of the stops is the supervisor's.
func (s *supervisor) start(ctx context.Context, i int, p Part) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Part: p, cancel: cancel}
	s.parts = append(s.parts, r)
	go func() {
		r.err = p.Run(ctx)
		s.ended <- i
	}()
}

func (s *supervisor) stop() {
	began := time.Now()
	deadline := time.NewTimer(s.timeout)
	defer deadline.Stop()
	for i, r := range slices.Backward(s.parts) {
		if r.gone {
			r.cancel()
			continue
		}
		r.asked = true
		r.cancel()
		if !s.wait(i, deadline.C) {
			s.cutOff()
			break
		}
		s.log.Debug("part stopped", zap.String("part", r.Name))
	}
	s.log.Info("stopped", zap.Duration("took", time.Since(began)))
}

// wait until part i has ended; parts that end meanwhile are noted. False: the time is over.
func (s *supervisor) wait(i int, over <-chan time.Time) bool {
	for !s.parts[i].gone {
		select {
		case n := <-s.ended:
			s.parts[n].gone = true
		case <-over:
			return false
		}
	}
	return true
}

// cutOff tells all that still run to stop, and waits a last time.
func (s *supervisor) cutOff() {
	last := time.NewTimer(s.timeout / 10)
	defer last.Stop()
	for _, r := range s.parts {
		if !r.gone {
			r.asked = true
			r.cancel()
		}
	}
	for i := range s.parts {
		if !s.wait(i, last.C) {
			return
		}
	}
}

func (s *supervisor) result(ctx context.Context) error {
	var errs []error
	stuck := &StuckError{After: s.timeout}
	for _, r := range s.parts {
		switch {
		case !r.gone:
			stuck.Parts = append(stuck.Parts, r.Name)
		case r.err != nil && !(r.asked && errors.Is(r.err, context.Canceled)):
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, r.err))
		case r.err == nil && !r.asked && ctx.Err() == nil:
			errs = append(errs, fmt.Errorf("%s: %w", r.Name, ErrEnded))
		}
	}
	if len(stuck.Parts) > 0 {
		errs = append(errs, stuck)
	}
	return errors.Join(errs...)
}
