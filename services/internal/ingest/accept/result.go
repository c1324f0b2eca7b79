package accept

import "ankusa.dev/services/internal/hook"

// Kind is what became of a request.
type Kind uint8

// Kinds. Only Committed and Duplicate acknowledge.
const (
	// Committed: the hook is durable.
	Committed Kind = iota + 1
	// Duplicate: the provider's event was committed before, under the ID of the result; nothing was stored.
	Duplicate
	// VerificationFailed, with the Reason.
	VerificationFailed
	// Overload: what may wait, waits. Nothing was stored.
	Overload
	// StoreUnavailable: nothing is known to be stored.
	StoreUnavailable
	// UnknownSource: there is no such source for such a tenant.
	UnknownSource
	// PayloadTooLarge: the body is above the cap.
	PayloadTooLarge
	// InvalidHeader: the header named by Reason holds bytes that cannot be carried.
	InvalidHeader
	// BodyReadFailed, with the Reason.
	BodyReadFailed
	// Gone: the sender left before its hook was taken up. Nobody is there to be answered.
	Gone
)

// Result of a request.
type Result struct {
	Kind   Kind
	ID     hook.ID
	Reason string
	// Limit in bytes, for PayloadTooLarge.
	Limit int
	// Err is what the store said, for the log alone.
	Err error
}

var codes = [...]string{
	Committed: "accepted", Duplicate: "accepted", VerificationFailed: "verification_failed", Overload: "overload",
	StoreUnavailable: "store_unavailable", UnknownSource: "unknown_source", PayloadTooLarge: "payload_too_large",
	InvalidHeader: "invalid_header", BodyReadFailed: "body_read_failed", Gone: "gone",
}

// Code is the word for the kind in answers.
func (k Kind) Code() string { return codes[k] }

// outcome numbers what is counted per source.
type outcome uint8

const (
	outCommitted outcome = iota
	outDuplicate
	outRejected
	outOverload
	outUnavailable
	outcomes
)

var outcomeNames = [outcomes]string{"committed", "duplicate", "rejected", "overload", "store_unavailable"}

// outcome of a kind; ok is false for one that is not counted per source.
func (k Kind) outcome() (outcome, bool) {
	switch k {
	case Committed:
		return outCommitted, true
	case Duplicate:
		return outDuplicate, true
	case VerificationFailed:
		return outRejected, true
	case Overload:
		return outOverload, true
	case StoreUnavailable:
		return outUnavailable, true
	default:
		return 0, false
	}
}
