package source

import (
	"slices"
	"strings"

	"ankusa.dev/services/internal/hook"
)

// OwnPrefix begins the names of the headers that this system adds. Nobody else's header of that prefix is forwarded.
const OwnPrefix = "x-ankusa-"

// neverForwarded are authentication and framing: they belong to the hop that carried them.
var neverForwarded = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "x-api-key": true,
	"host": true, "content-length": true, "content-type": true, "connection": true, "keep-alive": true,
	"transfer-encoding": true, "te": true, "trailer": true, "upgrade": true, "expect": true,
}

// notSettable are the names that a sink's own headers cannot have, beside the framing ones: the delivery sets them.
var notSettable = []string{
	"host", "content-length", "content-type", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade",
	"expect", "user-agent", "webhook-id", "webhook-timestamp", "webhook-signature", "traceparent", "tracestate",
}

// Forwardable says whether a header of a request may be forwarded at all. name is in lower case.
func Forwardable(name string) bool {
	return !neverForwarded[name] && !strings.HasPrefix(name, OwnPrefix)
}

// Stored says whether a header of a request is kept with its hook. What is forwarded nowhere is not, but for the content
// type, which is the hook's. name is in lower case.
func Stored(name string) bool { return name == "content-type" || Forwardable(name) }

// Settable says whether a sink may be configured to send a header. name is in lower case.
func Settable(name string) bool {
	return !slices.Contains(notSettable, name) && !strings.HasPrefix(name, OwnPrefix)
}

// Forward returns the headers of a hook that its sinks get, in their order and with lower-case names, and how many were
// dropped since a cap was reached: by count, or by bytes of names and values.
func (s *Source) Forward(headers []hook.Header) (kept []hook.Header, byCount, byBytes int) {
	size := 0
	for _, h := range headers {
		name := strings.ToLower(h.Name)
		if !s.forwards(name) {
			continue
		}
		switch n := len(name) + len(h.Value); {
		case len(kept) >= s.MaxHeaders:
			byCount++
		case size+n > s.ForwardHeadersMaxBytes:
			byBytes++
		default:
			size += n
			kept = append(kept, hook.Header{Name: name, Value: h.Value})
		}
	}
	return kept, byCount, byBytes
}

func (s *Source) forwards(name string) bool {
	return Forwardable(name) && (s.ForwardHeaders == nil || slices.Contains(s.ForwardHeaders, name))
}

// ValidHeaderName says whether a text is a header name: a token of RFC 9110, of at most 256 bytes.
func ValidHeaderName(s string) bool {
	if len(s) == 0 || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		if !tokenByte[s[i]] {
			return false
		}
	}
	return true
}

// ValidHeaderValue says whether a text can be carried as a header value anywhere: visible ASCII, space and tab.
func ValidHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

var tokenByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && c <= '~' && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", rune(c))
	}
	return t
}()
