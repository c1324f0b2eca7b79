package hook

import "time"

// Class says what the end of an attempt means for its delivery.
type Class uint8

const (
	// Delivered: the sink confirmed.
	Delivered Class = iota + 1
	// Transient: failed, and the retry policy decides.
	Transient
	// Throttled: failed, and the destination asked for a pause.
	Throttled
	// Permanent: failed for good.
	Permanent
	// PermanentConfig: failed for good until an operator mends the configuration.
	PermanentConfig
	// TimedOut: the attempt did not end in its time. A transient failure.
	TimedOut
	// Gone: the runner found no such version of the row, or no hook. Nothing was sent.
	Gone
	// SourceGone: the row's incarnation of the source exists no more. Nothing was sent.
	SourceGone
	// SinkGone: the source has no sink that the row can bind to. Nothing was sent.
	SinkGone
	// NotStarted: the runner could not begin, for example since the source could not be read. Nothing was sent.
	NotStarted
	// Lost: the runner vanished, or the lease ended without a word.
	Lost
)

// ErrorClass is the three-valued class of a dead letter.
type ErrorClass uint8

const (
	// NoError is the class of a success.
	NoError ErrorClass = iota
	// ErrorPermanent: the sink said that it will never work, or the source, the sink or the hook is gone.
	ErrorPermanent
	// ErrorThrottled: the destination asked for a pause until the horizon.
	ErrorThrottled
	// ErrorTransient: anything else that kept failing.
	ErrorTransient
)

func (c ErrorClass) String() string {
	switch c {
	case ErrorPermanent:
		return "permanent"
	case ErrorThrottled:
		return "throttled"
	case ErrorTransient:
		return "transient"
	default:
		return ""
	}
}

// ParseErrorClass reads the text of an error class; ok is false for any other text.
func ParseErrorClass(s string) (c ErrorClass, ok bool) {
	for c := ErrorPermanent; c <= ErrorTransient; c++ {
		if c.String() == s {
			return c, true
		}
	}
	return NoError, false
}

// ErrorClass of an outcome that ends a delivery.
func (c Class) ErrorClass() ErrorClass {
	switch c {
	case Delivered:
		return NoError
	case Permanent, PermanentConfig, SourceGone, SinkGone, Gone:
		return ErrorPermanent
	case Throttled:
		return ErrorThrottled
	default:
		return ErrorTransient
	}
}

// Sent says whether an attempt of this class may have reached the destination, and so counts as one.
func (c Class) Sent() bool {
	switch c {
	case Gone, SourceGone, SinkGone, NotStarted, Lost:
		return false
	default:
		return true
	}
}

// Outcome is the end of one attempt as a sink or a runner reports it.
type Outcome struct {
	Class Class
	// Reason in plain text without secrets, at most MaxReason bytes: "http: status 503".
	Reason string
	// RetryAfter is the pause that the destination asked for; zero for none.
	RetryAfter time.Duration
	Status     uint16
	Duration   time.Duration
	// Response holds the first bytes of the answer, at most MaxResponse.
	Response []byte
}

var classNames = [...]string{
	"", "delivered", "transient", "throttled", "permanent", "permanent_config", "timeout", "gone", "source_gone",
	"sink_gone", "not_started", "lost",
}

func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return ""
}
