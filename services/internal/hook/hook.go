// Package hook is the domain: hooks as received, their deliveries, the outcomes of attempts, and the rules that turn an
// outcome into what happens next. It knows no store, no clock and no network.
package hook

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DefaultTenant owns the sources and hooks of a deployment that names no tenant. Its sources are shared.
const DefaultTenant = "default"

// ID is a hook's identity: a UUIDv7, minted at receipt, unrelated to the provider's id.
type ID [16]byte

// ErrBadID: a text is not a UUID in lower-case canonical form.
var ErrBadID = errors.New("id is not a lower-case UUID")

// String is the canonical text of the UUID.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// Millis is the time of minting, in milliseconds since the Unix epoch.
func (id ID) Millis() int64 {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}

// ParseID reads the canonical lower-case text of a UUID.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' || strings.ToLower(s) != s {
		return id, ErrBadID
	}
	if _, err := hex.Decode(id[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil {
		return ID{}, ErrBadID
	}
	return id, nil
}

// Header is one header field as received. Name and Value hold the bytes as they came.
type Header struct{ Name, Value string }

// Verification says how a hook was checked at ingest.
type Verification uint8

const (
	// Skipped: nothing verified the hook.
	Skipped Verification = iota
	// Verified: the signature was good.
	Verified
	// Failed: the signature was not good.
	Failed
)

func (v Verification) String() string {
	switch v {
	case Verified:
		return "ok"
	case Failed:
		return "failed"
	default:
		return "skipped"
	}
}

// Hook is one accepted request. It is immutable once committed; holders share it without copying.
type Hook struct {
	ID ID
	// Tenant owns the hook. SourceID is the name of its source, or "tenant.name" for a source that a tenant other than
	// DefaultTenant defines.
	Tenant, SourceID string
	// Incarnation of the source that took the hook.
	Incarnation uint64
	// ReceivedAt is the wall clock of the ingest process, in milliseconds since the Unix epoch: for people, never for
	// decisions.
	ReceivedAt   int64
	Verification Verification
	// Flagged: accepted although the verification failed.
	Flagged bool
	// DedupeKey is the provider's event key, or empty.
	DedupeKey string
	// Headers in order of arrival, as the source's policy lets them be stored.
	Headers []Header
	// Body byte for byte as received.
	Body []byte
}

// Header returns the first value of a name, in any case of letters, and whether there is one.
func (h *Hook) Header(name string) (string, bool) {
	for _, f := range h.Headers {
		if strings.EqualFold(f.Name, name) {
			return f.Value, true
		}
	}
	return "", false
}

// IdempotencyKey is what consumers dedupe on: "tenant:source_id:key" where the provider's event key is known, else the
// hook's id. Retries and replays carry the same.
func (h *Hook) IdempotencyKey() string {
	if h.DedupeKey == "" {
		return h.ID.String()
	}
	return h.Tenant + ":" + h.SourceID + ":" + h.DedupeKey
}

// StoredSize is what the hook counts against byte windows: body, header names and values.
func (h *Hook) StoredSize() int {
	n := len(h.Body)
	for _, f := range h.Headers {
		n += len(f.Name) + len(f.Value)
	}
	return n
}

// SinkKey names one sink of one source, for one tenant, as bound when the hook was acknowledged. Caps, breakers and
// backlogs are kept per SinkKey.
type SinkKey struct {
	Tenant, SourceID string
	Index            uint16
	Type             string
}

func (k SinkKey) String() string {
	return fmt.Sprintf("%s/%s/%d/%s", k.Tenant, k.SourceID, k.Index, k.Type)
}

// Ref is what a delivery is known by, whatever row stands for it: one hook, one sink.
type Ref struct {
	Hook ID
	Sink uint16
}

// Place is a member's place in its lane: the start timestamp of the batch that acknowledged it and its index therein.
type Place struct {
	Start Timestamp
	Index uint32
}

// Less orders places by acknowledgement.
func (p Place) Less(o Place) bool {
	return p.Start < o.Start || p.Start == o.Start && p.Index < o.Index
}

// Row names one delivery row in the store. Together with Version it names one state of it.
type Row struct {
	Partition uint8
	Key       SinkKey
	Hook      ID
	// Due is when the next attempt may run; part of the key of an unordered row.
	Due Timestamp
	// Version is the start timestamp of the transaction that wrote the row.
	Version Timestamp
	// Ordered marks a lane member; Lane and Place are its own only.
	Ordered bool
	Lane    string
	Place   Place
}

// Ref is the delivery that the row stands for.
func (r *Row) Ref() Ref { return Ref{Hook: r.Hook, Sink: r.Key.Index} }

// Waits says whether a lane member was attempted, so that a wake-up row stands among the due rows for it.
func (r *Row) Waits() bool { return r.Ordered && r.Due != r.Place.Start }

// LaneFrom asks for the members of one lane from a place on, inclusive.
type LaneFrom struct {
	Partition uint8
	Key       SinkKey
	Lane      string
	From      Place
}

// LaneRows is the first rows of one lane in a snapshot, in order. More: the snapshot has members behind them.
type LaneRows struct {
	Lane string
	Rows []Delivery
	More bool
}

// State is what a delivery row remembers.
type State struct {
	// Incarnation of the source that the row is bound to.
	Incarnation uint64
	// Size of the stored hook in bytes.
	Size uint32
	// Sinks is the number of deliveries that the hook was committed with. A hook with one goes with its only row.
	Sinks uint16
	// Attempts that have ended and count, and losses of a runner since.
	Attempts, Lost uint32
	// FirstAttemptAt is the first claim's time; the horizon runs from there. Zero before.
	FirstAttemptAt Timestamp
	// ReplayID of the replay job that revived the delivery, or empty.
	ReplayID string
	// History holds the last attempts, oldest first, at most MaxHistory.
	History []Attempt
}

// MaxHistory bounds the attempts that a row remembers.
const MaxHistory = 5

// MaxResponse bounds the bytes of an answer that are remembered.
const MaxResponse = 256

// MaxReason bounds the bytes of a reason.
const MaxReason = 256

// Delivery is a row with its state.
type Delivery struct {
	Row
	State
}

// Attempt is one ended attempt, for people.
type Attempt struct {
	Number   uint32
	At       Timestamp // when it was leased
	Class    Class
	Status   uint16 // of the destination's protocol; 0 for none
	Duration time.Duration
	Reason   string
	Response []byte // first bytes of the answer
}
