package wire

import (
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

const (
	maxReason   = 512
	maxResponse = 1024
	maxReplayID = 64
	maxClaimRef = 512
	maxStatus   = 999
	// maxSpan bounds every duration but a pause.
	maxSpan = 24 * time.Hour
	// maxPause bounds the pause that a destination may ask for; policy caps it lower.
	maxPause = 366 * 24 * time.Hour
)

// Attempt is one leased delivery attempt.
type Attempt struct {
	Lease hook.Lease
	Row   hook.Row
	// Number of the attempt, from 1.
	Number uint32
	// Timeout of the attempt, counted from its arrival.
	Timeout time.Duration
	// Left until the lease ends, counted from its arrival, whatever happens.
	Left time.Duration
	// SourceRevision that the leader knows, and the Incarnation of the source that the row is bound to.
	SourceRevision hook.Timestamp
	Incarnation    uint64
	// ReplayID and ClaimRef are empty for none.
	ReplayID, ClaimRef string
	// Size of the stored hook in bytes.
	Size uint64
}

// AttemptsProto is the message that leases attempts. It shares memory with them.
func AttemptsProto(attempts []Attempt) *dispatchv1.Attempts {
	type slab struct {
		attempt       dispatchv1.Attempt
		row           rowSlab
		timeout, left durationpb.Duration
	}
	slabs, list := make([]slab, len(attempts)), make([]*dispatchv1.Attempt, len(attempts))
	for i := range attempts {
		a, s := &attempts[i], &slabs[i]
		p := &s.attempt
		p.Epoch, p.LeaseId, p.Row, p.Attempt = a.Lease.Epoch, a.Lease.ID, s.row.set(&a.Row), a.Number
		p.Timeout, p.Lease = setDuration(&s.timeout, a.Timeout), setDuration(&s.left, a.Left)
		p.SourceRevision, p.Incarnation = uint64(a.SourceRevision), a.Incarnation
		p.ReplayId, p.ClaimRef, p.Size = a.ReplayID, a.ClaimRef, a.Size
		list[i] = p
	}
	return &dispatchv1.Attempts{Attempts: list}
}

// ReadAttempts reads leased attempts. One malformed attempt refuses the message.
func ReadAttempts(p *dispatchv1.Attempts) ([]Attempt, error) {
	list := make([]Attempt, len(p.GetAttempts()))
	for i, pa := range p.GetAttempts() {
		if err := readAttempt(pa, &list[i]); err != nil {
			return nil, at("attempts", i, err)
		}
	}
	return list, nil
}

func readAttempt(p *dispatchv1.Attempt, a *Attempt) (err error) {
	if a.Row, err = ReadRow(p.GetRow()); err != nil {
		return err
	}
	if a.Timeout, err = readDuration("timeout", p.GetTimeout(), maxSpan); err != nil {
		return err
	}
	if a.Left, err = readDuration("lease", p.GetLease(), maxSpan); err != nil {
		return err
	}
	switch {
	case p.GetAttempt() == 0:
		return malformed("attempt")
	case a.Timeout == 0:
		return malformed("timeout")
	case a.Left == 0:
		return malformed("lease")
	case len(p.GetReplayId()) > maxReplayID:
		return malformed("replay_id")
	case len(p.GetClaimRef()) > maxClaimRef:
		return malformed("claim_ref")
	}
	a.Lease, a.Number = hook.Lease{Epoch: p.GetEpoch(), ID: p.GetLeaseId()}, p.GetAttempt()
	a.SourceRevision, a.Incarnation = hook.Timestamp(p.GetSourceRevision()), p.GetIncarnation()
	a.ReplayID, a.ClaimRef, a.Size = p.GetReplayId(), p.GetClaimRef(), p.GetSize()
	return nil
}

// ReportsProto is the list of outcomes for reports. It shares memory with them. Reasons and responses are cut to what
// the domain remembers, and a reason that is not UTF-8 is mended.
func ReportsProto(reports []hook.Report) []*dispatchv1.Outcome {
	type slab struct {
		outcome         dispatchv1.Outcome
		row             rowSlab
		pause, duration durationpb.Duration
	}
	slabs, list := make([]slab, len(reports)), make([]*dispatchv1.Outcome, len(reports))
	for i := range reports {
		r, s := &reports[i], &slabs[i]
		p := &s.outcome
		p.Epoch, p.LeaseId, p.Row, p.Attempt = r.Lease.Epoch, r.Lease.ID, s.row.set(&r.Row), r.Attempt
		p.Class, p.Reason = classProto(r.Outcome.Class), clip(r.Outcome.Reason, hook.MaxReason)
		if r.Outcome.RetryAfter > 0 {
			p.RetryAfter = setDuration(&s.pause, min(r.Outcome.RetryAfter, maxPause))
		}
		p.Status, p.Duration = uint32(r.Outcome.Status), setDuration(&s.duration, min(r.Outcome.Duration, maxSpan))
		p.Response = r.Outcome.Response[:min(len(r.Outcome.Response), hook.MaxResponse)]
		list[i] = p
	}
	return list
}

// MaxReports bounds the outcomes of one message.
const MaxReports = 4_096

// ReadOutcomes is ReadReports for a message of its own, which has a bound.
func ReadOutcomes(p *dispatchv1.Outcomes) ([]hook.Report, error) {
	if len(p.GetOutcomes()) > MaxReports {
		return nil, malformed("outcomes")
	}
	return ReadReports(p.GetOutcomes())
}

// ReadReports reads outcomes. One malformed outcome refuses the list.
func ReadReports(list []*dispatchv1.Outcome) ([]hook.Report, error) {
	reports := make([]hook.Report, len(list))
	for i, p := range list {
		if err := readReport(p, &reports[i]); err != nil {
			return nil, at("outcomes", i, err)
		}
	}
	return reports, nil
}

func readReport(p *dispatchv1.Outcome, r *hook.Report) (err error) {
	if r.Row, err = ReadRow(p.GetRow()); err != nil {
		return err
	}
	o := &r.Outcome
	if o.RetryAfter, err = readDuration("retry_after", p.GetRetryAfter(), maxPause); err != nil {
		return err
	}
	if o.Duration, err = readDuration("duration", p.GetDuration(), maxSpan); err != nil {
		return err
	}
	var known bool
	if o.Class, known = readClass(p.GetClass()); !known {
		return malformed("class")
	}
	switch {
	case p.GetAttempt() == 0:
		return malformed("attempt")
	case len(p.GetReason()) > maxReason:
		return malformed("reason")
	case len(p.GetResponse()) > maxResponse:
		return malformed("response")
	case p.GetStatus() > maxStatus:
		return malformed("status")
	}
	r.Lease, r.Attempt = hook.Lease{Epoch: p.GetEpoch(), ID: p.GetLeaseId()}, p.GetAttempt()
	o.Reason, o.Status = clip(p.GetReason(), hook.MaxReason), uint16(p.GetStatus())
	o.Response = p.GetResponse()[:min(len(p.GetResponse()), hook.MaxResponse)]
	return nil
}

// LeasesProto is the list of references to leases, for settled and drop.
func LeasesProto(leases []hook.Lease) []*dispatchv1.LeaseRef {
	slabs, list := make([]dispatchv1.LeaseRef, len(leases)), make([]*dispatchv1.LeaseRef, len(leases))
	for i, l := range leases {
		slabs[i].Epoch, slabs[i].LeaseId = l.Epoch, l.ID
		list[i] = &slabs[i]
	}
	return list
}

// ReadLeases reads references to leases; any numbers will do.
func ReadLeases(list []*dispatchv1.LeaseRef) []hook.Lease {
	leases := make([]hook.Lease, len(list))
	for i, p := range list {
		leases[i] = hook.Lease{Epoch: p.GetEpoch(), ID: p.GetLeaseId()}
	}
	return leases
}

func setDuration(p *durationpb.Duration, d time.Duration) *durationpb.Duration {
	p.Seconds, p.Nanos = int64(d/time.Second), int32(d%time.Second)
	return p
}

// readDuration reads an absent duration as zero and refuses a negative one or one above the bound.
func readDuration(field string, p *durationpb.Duration, bound time.Duration) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	if p.Seconds < 0 || p.Seconds > int64(bound/time.Second) || p.Nanos < 0 || int64(p.Nanos) >= int64(time.Second) {
		return 0, malformed(field)
	}
	return min(time.Duration(p.Seconds)*time.Second+time.Duration(p.Nanos), bound), nil
}

// clip cuts a text to a number of bytes, never within a rune, and replaces what is not UTF-8, which would refuse the
// whole message that it stands in.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
