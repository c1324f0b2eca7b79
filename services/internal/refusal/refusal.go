// Package refusal answers by JSON what net/http refuses by itself.
package refusal

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
)

// AsJSON has what net/http refuses by itself, before there is a request to handle, answered as everything else is: by
// JSON. What it writes then is one plain text on the connection, which is replaced; should it ever write another, that
// goes out as it is.
func AsJSON(l net.Listener) net.Listener { return refusing{l} }

// MaxHeaderBytes bounds request line and headers of the servers whose listeners AsJSON makes; more is answered 431.
const MaxHeaderBytes = 64 << 10

type refusing struct{ net.Listener }

func (r refusing) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok && err == nil {
		return &refusingConn{t}, nil
	}
	return c, err
}

// refusingConn keeps all else of a TCP connection, which net/http half-closes after a refusal.
type refusingConn struct{ *net.TCPConn }

func (c *refusingConn) Write(b []byte) (int, error) {
	answer, refused := refusal(b)
	if !refused {
		return c.TCPConn.Write(b)
	}
	if _, err := c.TCPConn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}

var (
	refusalStart = []byte("HTTP/1.1 ")
	refusalHead  = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
)

// longestRefusal bounds what is looked into: answers of the handler are not.
const longestRefusal = 512

// refusal is net/http's plain answer as JSON; ok is false for anything else.
func refusal(b []byte) (answer []byte, ok bool) {
	if len(b) > longestRefusal || !bytes.HasPrefix(b, refusalStart) {
		return nil, false
	}
	line, _, ok := bytes.Cut(b[len(refusalStart):], refusalHead)
	if !ok || len(line) < 3 {
		return nil, false
	}
	status, err := strconv.Atoi(string(line[:3]))
	if err != nil || status < 400 || bytes.ContainsAny(line, "\r\n") {
		return nil, false
	}
	_, reason, _ := bytes.Cut(line, []byte(": "))
	body := refusalBody(status, string(reason))
	answer = append(answer, refusalStart...)
	answer = strconv.AppendInt(answer, int64(status), 10)
	answer = append(append(answer, ' '), http.StatusText(status)...)
	answer = append(answer, "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "...)
	answer = strconv.AppendInt(answer, int64(len(body)), 10)
	return append(append(answer, "\r\n\r\n"...), body...), true
}

func refusalBody(status int, reason string) []byte {
	b := []byte(`{"error":"malformed_request"`)
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		b = strconv.AppendInt([]byte(`{"error":"headers_too_large","limit":`), MaxHeaderBytes, 10)
	case http.StatusNotImplemented:
		b = []byte(`{"error":"unsupported_transfer_encoding"`)
	case http.StatusHTTPVersionNotSupported:
		b = []byte(`{"error":"unsupported_http_version"`)
	default:
		if reason != "" {
			b = appendText(append(b, `,"reason":`...), reason)
		}
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // never for a string
		text = []byte(`""`)
	}
	return append(b, text...)
}
