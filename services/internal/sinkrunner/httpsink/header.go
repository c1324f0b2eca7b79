package httpsink

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/sinkrunner/sink"
)

// ownHeaders is how many headers a delivery mostly adds. Some are rare; a map of half the size is worth a rare growth.
const ownHeaders = 12

// header is everything that goes with the body: what the provider sent and may be forwarded, then the sink's configured
// headers, then the delivery's own, the later ones in place of the earlier. Names are in lower case on HTTP/1, except
// for Content-Type and User-Agent.
func (s *Sink) header(d *sink.Delivery, id string, signature signature) http.Header {
	forwarded, byCount, byBytes := d.Source.Forward(d.Hook.Headers)
	s.metrics.dropped(byCount, byBytes)
	set := d.Sink.HTTP.Headers
	f := fields{
		header: make(http.Header, len(forwarded)+len(set)+ownHeaders),
		values: make([]string, 0, len(forwarded)+len(set)+ownHeaders),
	}
	for _, h := range forwarded {
		if !replaced(h.Name) {
			f.add(h.Name, h.Value)
		}
	}
	for name, value := range set {
		f.set(name, value.Reveal())
	}
	f.own(d, id)
	f.trace(d.Hook)
	if signature.value != "" {
		f.set("webhook-id", id)
		f.set("webhook-timestamp", signature.timestamp)
		f.set("webhook-signature", signature.value)
	}
	f.set("User-Agent", s.agent)
	// An entry without values is not sent. It tells net/http that the request may be repeated on another connection
	// when an idle one turns out to be closed; receivers tell a repetition by the idempotency key.
	f.header["Idempotency-Key"] = nil
	return f.header
}

// replaced says whether the delivery sends its own field in place of the provider's, or none.
func replaced(name string) bool {
	return name == "user-agent" || name == "traceparent" || name == "tracestate"
}

// fields collects a header; the values stand in one slice.
type fields struct {
	header http.Header
	values []string
}

func (f *fields) set(name, value string) {
	f.values = append(f.values, value)
	n := len(f.values)
	f.header[name] = f.values[n-1 : n : n]
}

func (f *fields) add(name, value string) {
	if earlier := f.header[name]; earlier != nil {
		f.header[name] = append(earlier, value)
		return
	}
	f.set(name, value)
}

func (f *fields) some(name, value string) {
	if value != "" {
		f.set(name, value)
	}
}

func (f *fields) own(d *sink.Delivery, id string) {
	h := d.Hook
	sum := sha256.Sum256(h.Body)
	f.set("x-ankusa-id", id)
	f.set("x-ankusa-source", h.SourceID)
	f.some("x-ankusa-tenant", h.Tenant)
	f.set("x-ankusa-idempotency-key", fieldText(h.IdempotencyKey()))
	f.some("x-ankusa-dedupe-key", fieldText(h.DedupeKey))
	f.some("x-ankusa-ordering-key", fieldText(d.OrderingKey))
	f.some("x-ankusa-replay-id", d.ReplayID)
	f.set("x-ankusa-received-at", strconv.FormatInt(h.ReceivedAt, 10))
	f.set("x-ankusa-body-sha256", hex.EncodeToString(sum[:]))
	f.set("x-ankusa-verification", h.Verification.String())
	if h.Flagged {
		f.set("x-ankusa-verification-flagged", "true")
	}
	if contentType, ok := h.Header("content-type"); ok {
		f.set("Content-Type", contentType)
	}
}

// trace continues the trace that the provider's request was part of.
func (f *fields) trace(h *hook.Hook) {
	parent, _ := h.Header("traceparent")
	if !validParent(parent) {
		return
	}
	f.set("traceparent", parent)
	if state, ok := h.Header("tracestate"); ok && len(state) <= maxTraceState {
		f.some("tracestate", state)
	}
}

const maxTraceState = 512

// validParent says whether a text is a traceparent of version 00: version, trace id, parent id and flags in lower-case
// hexadecimal, neither id all zeros.
func validParent(s string) bool {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return false
	}
	for _, part := range [...]string{s[3:35], s[36:52], s[53:]} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// fieldText is a key as a header can carry it: itself, where it is visible ASCII without "%"; else with every other
// byte, and "%", as %XX. Different keys stay different.
func fieldText(key string) string {
	plain := true
	for i := range len(key) {
		plain = plain && fieldByte(key[i])
	}
	if plain {
		return key
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; fieldByte(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

func fieldByte(c byte) bool { return c > ' ' && c <= '~' && c != '%' }
