package wire

import (
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

const (
	maxRunnerName   = 255
	maxSinkTypes    = 32
	maxSlots        = 65536
	maxBatchingRows = 1 << 20
	// MaxHeld bounds the leases and the outcomes of a hello, each.
	MaxHeld = 65536
)

// Hello opens a runner's stream.
type Hello struct {
	Runner hook.RunID
	// Name for people.
	Name      string
	SinkTypes []string
	Credit    hook.Credit
	// Running leases of earlier streams, and outcomes that no leader acknowledged.
	Running        []hook.Running
	Unacknowledged []hook.Report
	HighestEpoch   uint64
}

// Proto is the message for a hello.
func (h *Hello) Proto() *dispatchv1.Hello {
	running := make([]*dispatchv1.RunningLease, len(h.Running))
	for i := range h.Running {
		r := &h.Running[i]
		running[i] = &dispatchv1.RunningLease{
			Epoch: r.Lease.Epoch, LeaseId: r.Lease.ID, Row: RowProto(&r.Row), Attempt: r.Attempt,
			Left: durationpb.New(r.Left),
		}
	}
	return &dispatchv1.Hello{
		RunnerId: h.Runner[:], Name: h.Name, SinkTypes: h.SinkTypes, Credit: CreditProto(h.Credit),
		Running: running, Unacknowledged: ReportsProto(h.Unacknowledged), HighestEpoch: h.HighestEpoch,
	}
}

// ReadHello reads a runner's hello.
func ReadHello(p *dispatchv1.Hello) (h Hello, err error) {
	if h.Runner, err = readRunID("runner_id", p.GetRunnerId()); err != nil {
		return Hello{}, err
	}
	if h.SinkTypes, err = readTypes(p.GetSinkTypes()); err != nil {
		return Hello{}, err
	}
	if p.GetCredit() == nil {
		return Hello{}, malformed("credit")
	}
	if h.Credit, err = ReadCredit(p.GetCredit()); err != nil {
		return Hello{}, err
	}
	switch {
	case len(p.GetName()) > maxRunnerName || strings.ContainsFunc(p.GetName(), isControl):
		return Hello{}, malformed("name")
	case len(p.GetRunning()) > MaxHeld:
		return Hello{}, malformed("running")
	case len(p.GetUnacknowledged()) > MaxHeld:
		return Hello{}, malformed("unacknowledged")
	}
	if h.Running, err = readRunning(p.GetRunning()); err != nil {
		return Hello{}, err
	}
	if h.Unacknowledged, err = ReadReports(p.GetUnacknowledged()); err != nil {
		return Hello{}, err
	}
	h.Name, h.HighestEpoch = p.GetName(), p.GetHighestEpoch()
	return h, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func readRunID(field string, b []byte) (id hook.RunID, err error) {
	if len(b) != len(id) {
		return id, malformed(field)
	}
	return hook.RunID(b), nil
}

func readTypes(types []string) ([]string, error) {
	if len(types) == 0 || len(types) > maxSinkTypes {
		return nil, malformed("sink_types")
	}
	for _, t := range types {
		if !isType(t) {
			return nil, malformed("sink_types")
		}
	}
	return types, nil
}

func readRunning(list []*dispatchv1.RunningLease) ([]hook.Running, error) {
	running := make([]hook.Running, len(list))
	for i, p := range list {
		row, err := ReadRow(p.GetRow())
		if err != nil {
			return nil, at("running", i, err)
		}
		left, err := readDuration("left", p.GetLeft(), maxSpan)
		if err != nil {
			return nil, at("running", i, err)
		}
		if p.GetAttempt() == 0 {
			return nil, at("running", i, malformed("attempt"))
		}
		running[i] = hook.Running{
			Lease: hook.Lease{Epoch: p.GetEpoch(), ID: p.GetLeaseId()}, Row: row, Attempt: p.GetAttempt(), Left: left,
		}
	}
	return running, nil
}

// CreditProto is the message for a credit, of which nothing is negative or over the bounds.
func CreditProto(c hook.Credit) *dispatchv1.Credit {
	return &dispatchv1.Credit{Slots: uint32(c.Slots), BatchingRows: uint32(c.Rows), BatchingBytes: uint64(c.Bytes)}
}

// ReadCredit reads a credit.
func ReadCredit(p *dispatchv1.Credit) (hook.Credit, error) {
	switch {
	case p.GetSlots() > maxSlots:
		return hook.Credit{}, malformed("slots")
	case p.GetBatchingRows() > maxBatchingRows:
		return hook.Credit{}, malformed("batching_rows")
	}
	return hook.Credit{
		Slots: int(p.GetSlots()), Rows: int(p.GetBatchingRows()), Bytes: int64(min(p.GetBatchingBytes(), math.MaxInt64)),
	}, nil
}
