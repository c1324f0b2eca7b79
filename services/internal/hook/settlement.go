package hook

// Settlement is what becomes of one claimed row.
type Settlement struct {
	// Delivery as it was claimed.
	Delivery Delivery
	// Verdict says what becomes of it, and its State.
	Verdict Verdict
	// Position: no unsettled row of the key is due before it. Zero leaves the stored one.
	Position Timestamp
	// Claimed is when the attempt that ended was leased; zero when there was none.
	Claimed Timestamp
}

// Transitions are the events that a settlement brings about, in order: the acceptance with the first, the lease, the
// end. What happened before a settle is logged with it, since nothing is written before.
func (s *Settlement) Transitions(at Timestamp) []Event {
	return s.AppendTransitions(make([]Event, 0, 3), at)
}

// AppendTransitions appends them to out.
func (s *Settlement) AppendTransitions(out []Event, at Timestamp) []Event {
	d := &s.Delivery
	base := Event{Key: d.Key, Hook: d.Hook}
	if d.FirstAttemptAt == 0 {
		e := base
		e.Kind, e.At = EventAccepted, d.Version
		out = append(out, e)
	}
	if s.Claimed != 0 {
		e := base
		e.Kind, e.At, e.Attempt = EventLeased, s.Claimed, d.Attempts+1
		out = append(out, e)
	}
	return append(out, s.end(base, at))
}

func (s *Settlement) end(e Event, at Timestamp) Event {
	e.At, e.Reason, e.Class = at, s.Verdict.Reason, s.Verdict.Class
	if n := len(s.Verdict.State.History); n > 0 && s.Verdict.State.Attempts > s.Delivery.Attempts {
		last := &s.Verdict.State.History[n-1]
		e.Attempt, e.Reason, e.Class = last.Number, last.Reason, last.Class.ErrorClass()
		e.Status, e.Duration = last.Status, last.Duration
	}
	switch s.Verdict.Kind {
	case Complete:
		e.Kind = EventDelivered
	case Again:
		e.Kind, e.NextDue = EventFailed, s.Verdict.Due
	case Bury:
		e.Kind, e.Reason, e.Class = EventDead, s.Verdict.Reason, s.Verdict.Class
	default:
		e.Kind = EventDropped
	}
	return e
}
