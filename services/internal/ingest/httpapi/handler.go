// Package httpapi takes hooks over HTTP.
package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/accept"
)

// Config of the handler and its server.
type Config struct {
	// Prefix of the URLs of hooks: "" or segments with a slash before each, "/webhooks".
	Prefix string
	// TenantFromURL: a URL is prefix/tenant/name; else it is prefix/source_id.
	TenantFromURL bool
	// HeaderTimeout bounds the request line and headers, BodyTimeout the body, IdleTimeout a connection without a
	// request. Default 10 s, 60 s, 60 s.
	HeaderTimeout, BodyTimeout, IdleTimeout time.Duration
	// MinBodyRate is the lowest rate of a body, in bytes per second, over any 5 s; 0 for none. Default 1,024.
	MinBodyRate int
	// MaxConnections bounds the open connections. Default 16,384.
	MaxConnections int
}

// Default returns the configuration that each field's comment states.
func Default() Config {
	return Config{
		Prefix: "/webhooks", HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, IdleTimeout: time.Minute,
		MinBodyRate: 1024, MaxConnections: 16_384,
	}
}

// Acceptor takes a request from its source to its outcome: an accept.Acceptor.
type Acceptor interface {
	Find(ctx context.Context, tenant, name string) (accept.Target, accept.Result)
	Accept(ctx context.Context, t accept.Target, headers []hook.Header, body []byte, now time.Time) accept.Result
	Refuse(r accept.Result) accept.Result
	MaxBodyBytes() int
	accept.BodyReader
}

// Handler takes hooks by POST under the prefix and hands every other request to the rest.
type Handler struct {
	config   Config
	acceptor Acceptor
	rest     http.Handler
}

// New makes a handler.
func New(c Config, a Acceptor, rest http.Handler) *Handler {
	return &Handler{config: c, acceptor: a, rest: rest}
}

// ServeHTTP answers 2xx only for what is committed.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if r.URL.RawPath != "" { // an escaped slash names no source
		path = r.URL.RawPath
	}
	path, under := strings.CutPrefix(path, h.config.Prefix)
	if !under || path == "" || path[0] != '/' || r.Method != http.MethodPost {
		h.rest.ServeHTTP(w, r)
		return
	}
	result := h.take(w, r, path[1:])
	if result.Kind == accept.PayloadTooLarge {
		defer linger(w, r)
	}
	write(w, result)
}

const (
	lingerBytes = 1 << 20
	lingerTime  = time.Second
)

// linger reads on for a little after a refusal in the middle of a body: a sender that is reset while it still writes
// never sees the answer, and sends the same again.
func linger(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if c.EnableFullDuplex() != nil || c.Flush() != nil || c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, r.Body, lingerBytes)
}

// take checks in an order that reads a body only when nothing else refuses the request.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, path string) accept.Result {
	if limit := h.acceptor.MaxBodyBytes(); r.ContentLength > int64(limit) {
		return h.acceptor.Refuse(accept.Result{Kind: accept.PayloadTooLarge, Limit: limit})
	}
	tenant, name := "", path
	if h.config.TenantFromURL {
		tenant, name, _ = strings.Cut(path, "/") // an empty name is that of no source
	}
	target, refused := h.acceptor.Find(r.Context(), tenant, name)
	if refused.Kind != 0 {
		return refused
	}
	headers := headersOf(r.Header)
	if bad := accept.CheckHeaders(headers); bad != "" {
		return h.acceptor.Refuse(accept.Result{Kind: accept.InvalidHeader, Reason: strings.ToLower(bad)})
	}
	if !framed(r) {
		return h.acceptor.Refuse(accept.Result{Kind: accept.BodyReadFailed, Reason: "no Content-Length"})
	}
	pace := pace{config: &h.config, writer: w}
	body, err := h.acceptor.ReadBody(r.Body, r.ContentLength, pace.progress)
	defer body.Release()
	if err != nil {
		return h.acceptor.Refuse(h.unread(err))
	}
	return h.acceptor.Accept(r.Context(), target, headers, body.Bytes, time.Now())
}

// framed says whether the end of the body is known. HTTP/1.0 has Content-Length alone for that; net/http ignores any
// Transfer-Encoding there, and would take the body for empty.
func framed(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) || r.Header.Get("Content-Length") != ""
}

// headersOf lists the headers by name, since their order of arrival is lost; values of one name keep theirs. The list
// has room for as many again.
func headersOf(h http.Header) []hook.Header {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	list := make([]hook.Header, 0, 2*n)
	for name, values := range h {
		for _, v := range values {
			list = append(list, hook.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(list, func(a, b hook.Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}

var (
	jsonType = []string{"application/json"}
	soon     = []string{"1"}
	closing  = []string{"close"}
)

var statuses = [...]int{
	accept.Committed: http.StatusCreated, accept.Duplicate: http.StatusCreated,
	accept.VerificationFailed: http.StatusUnauthorized, accept.UnknownSource: http.StatusNotFound,
	accept.PayloadTooLarge: http.StatusRequestEntityTooLarge,
	accept.InvalidHeader:   http.StatusBadRequest, accept.BodyReadFailed: http.StatusBadRequest,
	accept.Overload: http.StatusServiceUnavailable, accept.StoreUnavailable: http.StatusServiceUnavailable,
	accept.Gone: http.StatusServiceUnavailable,
}

// write answers. It is the only place that writes a 2xx, and does so for Committed and Duplicate alone.
func write(w http.ResponseWriter, r accept.Result) {
	header := w.Header()
	header["Content-Type"] = jsonType
	switch r.Kind {
	case accept.Overload, accept.StoreUnavailable, accept.Gone:
		header["Retry-After"] = soon
	case accept.PayloadTooLarge, accept.BodyReadFailed:
		header["Connection"] = closing // what is left of the body is not worth reading
	}
	var room [128]byte
	w.WriteHeader(statuses[r.Kind])
	_, _ = w.Write(appendBody(room[:0], r)) // a sender that has gone
}

func appendBody(b []byte, r accept.Result) []byte {
	switch r.Kind {
	case accept.Committed, accept.Duplicate:
		b = append(b, `{"status":"accepted","id":"`...)
		b = append(b, r.ID.String()...)
		if b = append(b, '"'); r.Kind == accept.Duplicate {
			b = append(b, `,"duplicate":true`...)
		}
	case accept.VerificationFailed, accept.BodyReadFailed:
		b = appendError(b, r, `,"reason":`)
		b = appendText(b, r.Reason)
	case accept.InvalidHeader:
		b = appendError(b, r, `,"header":`)
		b = appendText(b, r.Reason)
	case accept.PayloadTooLarge:
		b = appendError(b, r, `,"limit":`)
		b = strconv.AppendInt(b, int64(r.Limit), 10)
	default:
		b = appendError(b, r, "")
	}
	return append(b, '}')
}

func appendError(b []byte, r accept.Result, more string) []byte {
	b = append(b, `{"error":"`...)
	b = append(b, r.Kind.Code()...)
	return append(append(b, '"'), more...)
}

func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // never for a string
		text = []byte(`""`)
	}
	return append(b, text...)
}
