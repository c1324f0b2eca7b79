package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	dispatchv1 "ankusa.dev/proto/gen/ankusa/dispatch/v1"
	"ankusa.dev/services/internal/hook"
)

// reread checks that what one read accepted is written so that the next read accepts it as the same.
func reread[T any](t *testing.T, first T, again func() (T, error)) {
	t.Helper()
	second, err := again()
	require.NoError(t, err)
	if diff := cmp.Diff(first, second, cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
}

func FuzzLeaseRequest(f *testing.F) {
	h := hello()
	seed(f, &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Hello{Hello: h.Proto()}})
	seed(f, &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Outcomes{
		Outcomes: &dispatchv1.Outcomes{Outcomes: ReportsProto(reports())},
	}})
	seed(f, &dispatchv1.LeaseRequest{Message: &dispatchv1.LeaseRequest_Credit{Credit: CreditProto(hook.Credit{Slots: 1, Rows: 2, Bytes: 3})}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m dispatchv1.LeaseRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if h, err := ReadHello(m.GetHello()); err == nil {
			reread(t, h, func() (Hello, error) { return ReadHello(h.Proto()) })
		}
		if c, err := ReadCredit(m.GetCredit()); err == nil {
			reread(t, c, func() (hook.Credit, error) { return ReadCredit(CreditProto(c)) })
		}
		if r, err := ReadReports(m.GetOutcomes().GetOutcomes()); err == nil {
			reread(t, r, func() ([]hook.Report, error) { return ReadReports(ReportsProto(r)) })
		}
	})
}

func FuzzLeaseResponse(f *testing.F) {
	seed(f, &dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Attempts{Attempts: AttemptsProto(attempts())}})
	seed(f, &dispatchv1.LeaseResponse{Message: &dispatchv1.LeaseResponse_Settled{
		Settled: &dispatchv1.Settled{Leases: LeasesProto([]hook.Lease{{Epoch: 1, ID: 2}})},
	}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m dispatchv1.LeaseResponse
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if a, err := ReadAttempts(m.GetAttempts()); err == nil {
			reread(t, a, func() ([]Attempt, error) { return ReadAttempts(AttemptsProto(a)) })
		}
		for _, list := range [][]*dispatchv1.LeaseRef{m.GetSettled().GetLeases(), m.GetDrop().GetLeases()} {
			require.Len(t, LeasesProto(ReadLeases(list)), len(list))
		}
	})
}

func FuzzNotifyRequest(f *testing.F) {
	c := committed()
	seed(f, &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Committed{Committed: c.Proto()}})
	seed(f, &dispatchv1.NotifyRequest{Message: &dispatchv1.NotifyRequest_Hello{Hello: WriterHelloProto([]hook.RunID{{1}, {2}})}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m dispatchv1.NotifyRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if c, err := ReadCommitted(m.GetCommitted()); err == nil {
			reread(t, c, func() (Committed, error) { return ReadCommitted(c.Proto()) })
		}
		if w, err := ReadWriterHello(m.GetHello()); err == nil {
			reread(t, w, func() ([]hook.RunID, error) { return ReadWriterHello(WriterHelloProto(w)) })
		}
	})
}

func seed(f *testing.F, m proto.Message) {
	b, err := proto.Marshal(m)
	require.NoError(f, err)
	f.Add(b)
}

func BenchmarkAttempts(b *testing.B) {
	list := make([]Attempt, 64)
	for i := range list {
		list[i] = attempts()[0]
	}
	b.ReportAllocs()
	for b.Loop() {
		encoded, err := proto.Marshal(AttemptsProto(list))
		require.NoError(b, err)
		var m dispatchv1.Attempts
		require.NoError(b, proto.Unmarshal(encoded, &m))
		_, err = ReadAttempts(&m)
		require.NoError(b, err)
	}
}
