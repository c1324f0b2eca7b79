package hook

import "time"

// EventKind is a kind of delivery event.
type EventKind uint8

// The kinds, in the order of the wire's enum.
const (
	EventAccepted EventKind = iota + 1
	EventLeased
	EventFailed
	EventDelivered
	EventDead
	EventDropped
	EventBreakerOpened
	EventBreakerHalfOpen
	EventBreakerClosed
	EventFellBehind
)

var eventNames = [...]string{
	"", "accepted", "leased", "failed", "delivered", "dead", "dropped",
	"breaker_opened", "breaker_half_open", "breaker_closed", "fell_behind",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return ""
}

// ParseEventKind reads the text of a kind that a watcher can select; ok is false for any other text.
func ParseEventKind(s string) (k EventKind, ok bool) {
	for k := EventAccepted; k < EventFellBehind; k++ {
		if k.String() == s {
			return k, true
		}
	}
	return 0, false
}

// Event is one transition of a delivery, or of a sink key's breaker.
type Event struct {
	Kind    EventKind
	At      Timestamp
	Key     SinkKey
	Hook    ID // zero for breakers
	Attempt uint32
	// Reason, Class, Status and Duration of the attempt that ended.
	Reason   string
	Class    ErrorClass
	Status   uint16
	Duration time.Duration
	// NextDue of a failed delivery.
	NextDue Timestamp
}
