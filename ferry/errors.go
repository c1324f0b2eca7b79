package ferry

import (
	"errors"
	"fmt"

	"ankusa.dev/ferry/internal/queue"
)

var (
	// ErrRejected is matched by every *RejectedError.
	ErrRejected = errors.New("ferry: rejected")
	// ErrClosed answers an input that came after Close, or that Close gave up
	// before it was taken. The input has not been run and never will be.
	ErrClosed = errors.New("ferry: closed")
	// ErrInterrupted is matched by the error of a Close that gave up, is the
	// cause of run's context from then on, and is joined to the error with which
	// run ends a whole batch after that.
	ErrInterrupted = errors.New("ferry: interrupted by close")
	// ErrDefect is matched by what can only be a fault in the program: a
	// *PanicError or a *ResultCountError. Whether the batch took effect is not
	// known.
	ErrDefect = errors.New("ferry: defect in run")
	// ErrGoexit is the value of the PanicError of a run that ended its goroutine.
	ErrGoexit = errors.New("runtime.Goexit called")
)

// Bound names the limit that kept an input out.
type Bound uint8

// The bounds of admission.
const (
	MaxQueue Bound = iota + 1
	MaxQueueWeight
	MaxQueuePerGroup
	MaxQueueWeightPerGroup
)

// String returns the name of the Config field.
func (b Bound) String() string {
	switch b {
	case MaxQueue:
		return "MaxQueue"
	case MaxQueueWeight:
		return "MaxQueueWeight"
	case MaxQueuePerGroup:
		return "MaxQueuePerGroup"
	case MaxQueueWeightPerGroup:
		return "MaxQueueWeightPerGroup"
	}
	return fmt.Sprintf("Bound(%d)", uint8(b))
}

// RejectedError says that an input was not admitted and which bound kept it
// out. It has had no effect; the same input may be tried again later.
type RejectedError struct{ Bound Bound }

func (e *RejectedError) Error() string { return "ferry: rejected: " + e.Bound.String() + " reached" }

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// rejections is indexed by queue.Bound: a rejection allocates nothing.
var rejections = [...]*RejectedError{
	queue.Total:       {MaxQueue},
	queue.TotalWeight: {MaxQueueWeight},
	queue.Group:       {MaxQueuePerGroup},
	queue.GroupWeight: {MaxQueueWeightPerGroup},
}

// PanicError is the answer to every caller of a batch whose run panicked or
// ended its goroutine.
type PanicError struct {
	Value any
	Stack []byte // of the panic; none for ErrGoexit
}

func (e *PanicError) Error() string { return fmt.Sprintf("ferry: run panicked: %v", e.Value) }

// Is reports whether target is ErrDefect.
func (e *PanicError) Is(target error) bool { return target == ErrDefect }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ResultCountError is the answer to every caller of a batch for which run
// returned another number of results than there were inputs, and no error.
type ResultCountError struct{ Got, Want int }

func (e *ResultCountError) Error() string {
	return fmt.Sprintf("ferry: run returned %d results for %d inputs", e.Got, e.Want)
}

// Is reports whether target is ErrDefect.
func (e *ResultCountError) Is(target error) bool { return target == ErrDefect }

// ConfigError is one fault in a Config.
type ConfigError struct{ Field, Problem string }

func (e *ConfigError) Error() string { return "ferry: config: " + e.Field + ": " + e.Problem }
