// Package grpcapi takes hooks over gRPC, with the outcomes of HTTP.
package grpcapi

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	ingestv1 "ankusa.dev/proto/gen/ankusa/ingest/v1"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
	"ankusa.dev/services/internal/wire"
)

// Acceptor takes a request from its source to its outcome: an accept.Acceptor.
type Acceptor interface {
	Find(ctx context.Context, tenant, name string) (accept.Target, accept.Result)
	Accept(ctx context.Context, t accept.Target, headers []hook.Header, body []byte, now time.Time) accept.Result
	Refuse(r accept.Result) accept.Result
	MaxBodyBytes() int
	HoldBody(received []byte) (accept.Body, error)
}

// Bounds of the headers of a request, in number and, names and values together, in bytes.
const (
	maxHeaders     = 256
	maxHeaderBytes = 64 << 10
)

// Server is the IngestService.
type Server struct {
	ingestv1.UnimplementedIngestServiceServer
	acceptor Acceptor
}

// New makes a server.
func New(a Acceptor) *Server { return &Server{acceptor: a} }

// Accept answers without an error only for what is committed.
func (s *Server) Accept(ctx context.Context, p *ingestv1.AcceptRequest) (*ingestv1.AcceptResponse, error) {
	return answer(s.take(ctx, p))
}

func (s *Server) take(ctx context.Context, p *ingestv1.AcceptRequest) accept.Result {
	limit := s.acceptor.MaxBodyBytes()
	if len(p.GetBody()) > limit {
		return s.acceptor.Refuse(accept.Result{Kind: accept.PayloadTooLarge, Limit: limit})
	}
	body, err := s.acceptor.HoldBody(p.GetBody())
	if err != nil {
		return s.acceptor.Refuse(accept.Result{Kind: accept.Overload, Err: err})
	}
	defer body.Release()
	target, refused := s.acceptor.Find(ctx, p.GetTenant(), p.GetSource())
	if refused.Kind != 0 {
		return refused
	}
	headers, bad := headersOf(p.GetHeaders())
	if bad != "" {
		return s.acceptor.Refuse(accept.Result{Kind: accept.InvalidHeader, Reason: bad})
	}
	return s.acceptor.Accept(ctx, target, headers, body.Bytes, time.Now())
}

// headersOf lists the headers in their order, with room for as many again. bad names the first that cannot be carried,
// and is free of bytes that a message could not hold.
func headersOf(list []*ingestv1.Header) (headers []hook.Header, bad string) {
	if len(list) > maxHeaders {
		return nil, "more than " + strconv.Itoa(maxHeaders)
	}
	size := 0
	for _, h := range list {
		size += len(h.GetName()) + len(h.GetValue())
	}
	if size > maxHeaderBytes {
		return nil, "more than " + strconv.Itoa(maxHeaderBytes) + " bytes"
	}
	headers = make([]hook.Header, 0, 2*len(list))
	for _, h := range list {
		// As HTTP does, which cannot carry space around a value.
		headers = append(headers, hook.Header{Name: h.GetName(), Value: strings.Trim(string(h.GetValue()), " \t")})
	}
	if bad = accept.CheckHeaders(headers); bad == "" && !named(headers) {
		bad = "a header without a name"
	}
	return headers, strings.ToValidUTF8(strings.ToLower(bad), "?")
}

func named(headers []hook.Header) bool {
	for _, h := range headers {
		if h.Name == "" {
			return false
		}
	}
	return true
}

func answer(r accept.Result) (*ingestv1.AcceptResponse, error) {
	switch r.Kind {
	case accept.Committed, accept.Duplicate:
		return &ingestv1.AcceptResponse{Id: r.ID.String(), Duplicate: r.Kind == accept.Duplicate}, nil
	case accept.VerificationFailed, accept.BodyReadFailed:
		return nil, wire.Error(code(r.Kind), r.Kind.Code(), map[string]string{"reason": r.Reason})
	case accept.InvalidHeader:
		return nil, wire.Error(code(r.Kind), r.Kind.Code(), map[string]string{"header": r.Reason})
	case accept.PayloadTooLarge:
		return nil, wire.Error(code(r.Kind), r.Kind.Code(), map[string]string{"limit": strconv.Itoa(r.Limit)})
	default:
		return nil, wire.Error(code(r.Kind), r.Kind.Code(), nil)
	}
}

func code(k accept.Kind) codes.Code {
	switch k {
	case accept.UnknownSource:
		return codes.NotFound
	case accept.VerificationFailed:
		return codes.Unauthenticated
	case accept.InvalidHeader, accept.BodyReadFailed:
		return codes.InvalidArgument
	case accept.PayloadTooLarge:
		return codes.OutOfRange
	case accept.Overload:
		return codes.ResourceExhausted
	case accept.Gone:
		return codes.Canceled
	default:
		return codes.Unavailable
	}
}
