package grpcapi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/ingest/grpcapi"
	"ankusa.dev/services/internal/wire"
)

// acceptor answers what it is told to and keeps what it was given.
type acceptor struct {
	found, result accept.Result
	tenant, name  string
	headers       []hook.Header
	body          []byte
	refused       int
	full          bool
}

func (a *acceptor) Find(_ context.Context, tenant, name string) (accept.Target, accept.Result) {
	a.tenant, a.name = tenant, name
	return accept.Target{}, a.found
}

func (a *acceptor) Accept(_ context.Context, _ accept.Target, headers []hook.Header, body []byte, _ time.Time) accept.Result {
	a.headers, a.body = headers, body
	return a.result
}

func (a *acceptor) Refuse(r accept.Result) accept.Result { a.refused++; return r }
func (a *acceptor) MaxBodyBytes() int                    { return 10 }

func (a *acceptor) HoldBody(received []byte) (accept.Body, error) {
	if a.full {
		return accept.Body{}, accept.ErrNoRoom
	}
	return accept.Body{Bytes: received}, nil
}

func header(name, value string) *ingestv1.Header {
	return &ingestv1.Header{Name: name, Value: []byte(value)}
}

func TestARequestIsHandedOnAsItCame(t *testing.T) {
	a := &acceptor{result: accept.Result{Kind: accept.Committed, ID: hook.ID{1}}}
	r, err := grpcapi.New(a).Accept(t.Context(), &ingestv1.AcceptRequest{
		Tenant: "acme", Source: "s", Body: []byte{0, 0xff},
		Headers: []*ingestv1.Header{header("X-B", "1"), header("x-a", " 2\t"), header("X-B", "3")},
	})
	require.NoError(t, err)
	require.Equal(t, hook.ID{1}.String(), r.Id)
	require.False(t, r.Duplicate)
	require.Equal(t, "acme", a.tenant)
	require.Equal(t, "s", a.name)
	require.Equal(t, []byte{0, 0xff}, a.body)
	require.Equal(t, []hook.Header{{Name: "X-B", Value: "1"}, {Name: "x-a", Value: "2"}, {Name: "X-B", Value: "3"}}, a.headers)

	a.result.Kind = accept.Duplicate
	r, err = grpcapi.New(a).Accept(t.Context(), &ingestv1.AcceptRequest{Source: "s"})
	require.NoError(t, err)
	require.True(t, r.Duplicate)
}

func TestEveryOtherOutcomeIsAnErrorWithItsReason(t *testing.T) {
	for kind, want := range map[accept.Kind]codes.Code{
		accept.VerificationFailed: codes.Unauthenticated, accept.Overload: codes.ResourceExhausted,
		accept.StoreUnavailable: codes.Unavailable, accept.Gone: codes.Canceled, accept.PayloadTooLarge: codes.OutOfRange,
		accept.UnknownSource: codes.NotFound, accept.InvalidHeader: codes.InvalidArgument,
	} {
		for _, early := range []bool{true, false} {
			a := &acceptor{result: accept.Result{Kind: kind, Reason: "why"}}
			if early {
				a.found = a.result
			}
			r, err := grpcapi.New(a).Accept(t.Context(), &ingestv1.AcceptRequest{Source: "s"})
			require.Nil(t, r)
			require.Equal(t, want, status.Code(err))
			reason, _, ok := wire.Reason(err)
			require.True(t, ok)
			require.Equal(t, kind.Code(), reason)
		}
	}
}

func TestWhatCannotBeCarriedIsRefusedBeforeAnythingIsDone(t *testing.T) {
	many := make([]*ingestv1.Header, 257)
	for i := range many {
		many[i] = header("a", "b")
	}
	for name, p := range map[string]*ingestv1.AcceptRequest{
		"header byte":       {Headers: []*ingestv1.Header{header("X-A", "\x01")}},
		"L34 not text":      {Headers: []*ingestv1.Header{header("X-A", "J\xfcrgen")}},
		"name not a token":  {Headers: []*ingestv1.Header{header("X A", "b")}},
		"name not UTF-8":    {Headers: []*ingestv1.Header{header("X\xff", "b")}},
		"no name":           {Headers: []*ingestv1.Header{header("", "b")}},
		"nothing at all":    {Headers: []*ingestv1.Header{nil}},
		"too many headers":  {Headers: many},
		"too much of them":  {Headers: []*ingestv1.Header{header("a", strings.Repeat("b", 64<<10))}},
		"body over the cap": {Body: []byte(strings.Repeat("x", 11))},
	} {
		a := &acceptor{result: accept.Result{Kind: accept.Committed}}
		_, err := grpcapi.New(a).Accept(t.Context(), p)
		require.Error(t, err, name)
		require.Nil(t, a.headers, name)
		require.Equal(t, 1, a.refused, name)
		_, _, ok := wire.Reason(err)
		require.True(t, ok, name)
	}
}

func TestABodyThatFindsNoRoomIsAnOverload(t *testing.T) {
	a := &acceptor{full: true, result: accept.Result{Kind: accept.Committed}}
	_, err := grpcapi.New(a).Accept(t.Context(), &ingestv1.AcceptRequest{Source: "s", Body: []byte("x")})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	reason, _, _ := wire.Reason(err)
	require.Equal(t, accept.Overload.Code(), reason)
	require.Equal(t, 1, a.refused)
	require.Empty(t, a.name, "nothing is looked up")
}

func FuzzNoMessageIsAcknowledgedUnlessAccepted(f *testing.F) {
	f.Add("t", "s", "X-A", []byte("v"), []byte("b"))
	f.Fuzz(func(t *testing.T, tenant, source, name string, value, body []byte) {
		a := &acceptor{result: accept.Result{Kind: accept.StoreUnavailable}}
		r, err := grpcapi.New(a).Accept(t.Context(), &ingestv1.AcceptRequest{
			Tenant: tenant, Source: source, Headers: []*ingestv1.Header{{Name: name, Value: value}}, Body: body,
		})
		require.Nil(t, r)
		require.Error(t, err)
		_, _, ok := wire.Reason(err)
		require.True(t, ok)
	})
}
