package httpsink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"syscall"
)

// phrase describes a failed exchange in fixed words: the texts of network errors can hold what the receiver sent.
func phrase(err error) string {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		alert       tls.AlertError
		record      tls.RecordHeaderError
		authority   x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &name):
		return "name not resolved"
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "certificate not accepted"
	case errors.As(err, &alert), errors.As(err, &record):
		return "tls failure"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case isTimeout(err):
		return "timeout"
	default:
		return phraseConnection(err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func phraseConnection(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "host unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "connection closed"
	default:
		return "exchange failed"
	}
}
