package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain marks an ErrorInfo that was written to be shown. Another's reason is not ours to show.
const errorDomain = "ankusa.dev"

// statusClientClosed is what the access log of a proxy shows for a client that went away.
const statusClientClosed = 499

// A verdict is how an error of one gRPC code is answered: its HTTP status, and its error code where the error itself
// brings no reason.
type verdict struct {
	status int
	code   string
}

var internalError = verdict{http.StatusInternalServerError, "internal"}

var verdicts = map[codes.Code]verdict{
	codes.Canceled:           {statusClientClosed, "canceled"},
	codes.InvalidArgument:    {http.StatusBadRequest, "invalid_request"},
	codes.OutOfRange:         {http.StatusBadRequest, "invalid_request"},
	codes.Unauthenticated:    {http.StatusUnauthorized, "unauthenticated"},
	codes.PermissionDenied:   {http.StatusForbidden, "forbidden"},
	codes.NotFound:           {http.StatusNotFound, "not_found"},
	codes.AlreadyExists:      {http.StatusConflict, "conflict"},
	codes.FailedPrecondition: {http.StatusConflict, "conflict"},
	codes.Aborted:            {http.StatusConflict, "conflict"},
	codes.ResourceExhausted:  {http.StatusTooManyRequests, "rate_limited"},
	codes.Unimplemented:      {http.StatusNotImplemented, "not_implemented"},
	codes.Unavailable:        {http.StatusServiceUnavailable, "dispatch_unavailable"},
	codes.DeadlineExceeded:   {http.StatusServiceUnavailable, "dispatch_unavailable"},
}

// Reasons whose status is not that of their gRPC code.
var statusOfReason = map[string]int{
	"overload":          http.StatusServiceUnavailable,
	"resume_expired":    http.StatusGone,
	"payload_too_large": http.StatusRequestEntityTooLarge,
}

// Fields of an error that are numbers in JSON; the metadata of an ErrorInfo holds text alone.
var numericFields = map[string]bool{
	"pending":  true,
	"inflight": true,
	"limit":    true,
}

// failures turns the errors of calls into the answers of the API. An answer holds what the ErrorInfo says and nothing
// else: the message of a status may speak of internals, so it goes to the log.
type failures struct{ log *zap.Logger }

func (f failures) answer(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	s := status.Convert(err)
	f.note(ctx, s)
	code, httpStatus, fields := judge(s)
	refuse(w, httpStatus, code, fields)
}

func (f failures) stream(ctx context.Context, err error) *status.Status {
	s := status.Convert(err)
	f.note(ctx, s)
	return s
}

// note logs what an operator has to look at: an error that the schedulers do not explain to the client.
func (f failures) note(ctx context.Context, s *status.Status) {
	if v, known := verdicts[s.Code()]; known && v != internalError || infoOf(s) != nil {
		return
	}
	method, _ := runtime.RPCMethod(ctx)
	f.log.Error("a call failed without a reason for the client",
		zap.String("method", method), zap.Stringer("code", s.Code()), zap.String("message", s.Message()))
}

func judge(s *status.Status) (code string, httpStatus int, fields map[string]any) {
	v, known := verdicts[s.Code()]
	if !known {
		v = internalError
	}
	info := infoOf(s)
	if info == nil {
		return v.code, v.status, nil
	}
	if special, ok := statusOfReason[info.GetReason()]; ok {
		v.status = special
	}
	return info.GetReason(), v.status, fieldsOf(info)
}

func infoOf(s *status.Status) *errdetails.ErrorInfo {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain && info.GetReason() != "" {
			return info
		}
	}
	return nil
}

func fieldsOf(info *errdetails.ErrorInfo) map[string]any {
	fields := make(map[string]any, len(info.GetMetadata()))
	for name, text := range info.GetMetadata() {
		fields[name] = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && numericFields[name] {
			fields[name] = n
		}
	}
	return fields
}

// refuse writes an error of the API: its code, and the fields beside it.
func refuse(w http.ResponseWriter, httpStatus int, code string, fields map[string]any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if httpStatus == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(httpStatus)
	_, _ = w.Write(append(errorBody(code, fields), '\n')) // the client may be gone; nobody else is to be told
}

func errorBody(code string, fields map[string]any) []byte {
	body := make(map[string]any, len(fields)+1)
	for name, v := range fields {
		body[name] = v
	}
	body["error"] = code
	data, err := json.Marshal(body)
	if err != nil {
		return []byte(`{"error":"internal"}`) // text and numbers always encode
	}
	return data
}
