// Package history is what a run leaves behind: append-only logs of what the load was told and of what the receiver saw.
// They are all that a verdict may be built on.
package history

import "time"

// Request is one request of the load and what came back. A provider that resends an event writes one Request for each
// try, with the same Key.
type Request struct {
	Seq    int    `json:"seq"`
	Source string `json:"source"`
	// Key is the provider's event key, or empty for a source that does not deduplicate.
	Key string `json:"key,omitempty"`
	// Ordered: the source's sink delivers in lanes, and the event belongs to this one.
	Ordered    bool      `json:"ordered,omitempty"`
	Lane       string    `json:"lane,omitempty"`
	BodySHA256 string    `json:"body_sha256"`
	Sent       time.Time `json:"sent"`
	Answered   time.Time `json:"answered"`
	// Status of the answer; 0 where none came.
	Status int `json:"status"`
	// ID is the hook's, as a 201 names it.
	ID        string `json:"id,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// Error says why no answer came, or what was wrong with it.
	Error string `json:"error,omitempty"`
}

// Acked says whether the sender was told that the hook is safe.
func (r *Request) Acked() bool { return r.Status >= 200 && r.Status < 300 }

// Refused says whether the sender was told that nothing was stored and that a retry would not help.
func (r *Request) Refused() bool { return r.Status >= 400 && r.Status < 500 }

// Attempt is one delivery attempt as the receiver saw it.
type Attempt struct {
	// ID, Source and IdempotencyKey are the delivery's headers.
	ID             string `json:"id"`
	Source         string `json:"source"`
	IdempotencyKey string `json:"idempotency_key"`
	// OrderingKey names the lane; empty for the keyless one and for sinks without order.
	OrderingKey string `json:"ordering_key,omitempty"`
	BodySHA256  string `json:"body_sha256"`
	// ClaimedSHA256 is the digest that the sender put into a header.
	ClaimedSHA256 string    `json:"claimed_sha256,omitempty"`
	Arrived       time.Time `json:"arrived"`
	Answered      time.Time `json:"answered"`
	// Status that the receiver answered; 0 where it broke off instead.
	Status int `json:"status"`
	// RetryAfter is the pause that the answer asked for.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// BadSignature says what is wrong with the Standard Webhooks signature; empty for a good one.
	BadSignature string `json:"bad_signature,omitempty"`
	// Path of the request.
	Path string `json:"path"`
}

// Confirmed says whether the receiver took the delivery.
func (a *Attempt) Confirmed() bool { return a.Status >= 200 && a.Status < 300 }

// DeadLetter is one entry of the dead-letter listing at the end of a run.
type DeadLetter struct {
	ID       string `json:"id"`
	SourceID string `json:"source_id"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
}

// Kind of a fault.
type Kind string

const (
	// ProcessLost: a process or a connection was taken away. Attempts that it held may run again.
	ProcessLost Kind = "process_lost"
	// LeaderPaused: the leading scheduler was stopped past its lease and continued at To.
	LeaderPaused Kind = "leader_paused"
	// StoreLost: the store could not be reached from From on, and not before To again.
	StoreLost Kind = "store_lost"
)

// Fault is a window in which the run was disturbed on purpose.
type Fault struct {
	Kind   Kind      `json:"kind"`
	Target string    `json:"target"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
}
