package wire

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errorDomain marks the error details that are this system's.
const errorDomain = "ankusa.dev"

// Error is a gRPC error whose reason is the code of the REST body and whose fields stand beside it: reason
// "source_has_deliveries", fields pending and inflight. Both reach the client; internals do not belong here.
func Error(code codes.Code, reason string, fields map[string]string) error {
	st := status.New(code, reason)
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain, Metadata: fields})
	if err != nil { // the code is OK, or a field is not UTF-8
		return st.Err()
	}
	return detailed.Err()
}

// Reason reads what Error wrote, from this process or another; ok is false for every other error.
func Reason(err error) (reason string, fields map[string]string, ok bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, isInfo := detail.(*errdetails.ErrorInfo); isInfo && info.GetDomain() == errorDomain {
			return info.GetReason(), info.GetMetadata(), true
		}
	}
	return "", nil, false
}
