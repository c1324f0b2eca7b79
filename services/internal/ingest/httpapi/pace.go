package httpapi

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"ankusa.dev/services/internal/ingest/accept"
)

// window is the time over which the rate of a body is judged.
const window = 5 * time.Second

// firstBody is the time after the headers within which the first of a body must come.
const firstBody = 30 * time.Second

// pace holds a body that does not come at once to its deadline and its lowest rate, by deadlines of the connection. The
// server lifts the last of them when the body has been read, so that none ends the wait for the commit.
type pace struct {
	config *Config
	writer http.ResponseWriter
	until  time.Time // of the body
	end    time.Time // of the window
	goal   int       // bytes that the window must reach
}

// progress moves the window once its goal is reached.
func (p *pace) progress(n int) error {
	now := time.Now()
	switch {
	case p.until.IsZero():
		p.until = now.Add(p.config.BodyTimeout)
	case n < p.goal && now.Before(p.end):
		return nil
	case n < p.goal:
		return os.ErrDeadlineExceeded
	}
	p.end = p.until
	if p.config.MinBodyRate > 0 {
		p.goal = n + p.config.MinBodyRate*int(window/time.Second)
		if end := now.Add(window); end.Before(p.end) {
			p.end = end
		}
	}
	return http.NewResponseController(p.writer).SetReadDeadline(p.end)
}

// unread says why a body could not be read. The cause goes with it only where the connection gave it: net/http quotes
// what it could not parse, which is a part of the body.
func (h *Handler) unread(err error) accept.Result {
	r := accept.Result{Kind: accept.BodyReadFailed, Reason: "malformed framing"}
	var lost *net.OpError
	switch {
	case errors.Is(err, accept.ErrBodyTooLarge):
		return accept.Result{Kind: accept.PayloadTooLarge, Limit: h.acceptor.MaxBodyBytes()}
	case errors.Is(err, accept.ErrNoRoom):
		return accept.Result{Kind: accept.Overload, Err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Reason = "too slow"
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.Reason = "shorter than announced"
	case errors.As(err, &lost):
		r.Reason, r.Err = "connection lost", lost
	}
	return r
}
