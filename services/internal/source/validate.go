package source

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ankusa.dev/services/internal/hook"
)

// Rules are what the validity of a source depends on beside itself.
type Rules struct {
	// TenantFromURL: requests name their tenant, so that strangers choose it for a shared source.
	TenantFromURL bool
}

// Validate returns every fault, as Faults, or nil. key is the dotted key of the source, or empty.
func (s *Source) Validate(key string, r Rules) error {
	var f Faults
	s.validate(&f, key, r)
	return f.err()
}

func (s *Source) validate(f *Faults, key string, r Rules) {
	name(f, at(key, "tenant"), s.Tenant)
	name(f, at(key, "name"), s.Name)
	s.Verify.validate(f, at(key, "verify"))
	s.validatePolicies(f, key)
	if s.Dedupe != nil {
		s.Dedupe.validate(f, at(key, "dedupe"))
	}
	if n := len(s.Sinks); n < 1 || n > MaxSinks {
		f.must(at(key, "sinks"), fmt.Sprintf("a list of 1 to %d", MaxSinks), fmt.Sprint(n))
	}
	for i := range s.Sinks {
		s.Sinks[i].validate(f, at(key, fmt.Sprintf("sinks.%d", i)))
	}
	s.Retry.validate(f, at(key, "retry"))
	s.validateForwarding(f, key)
	if s.Shared() && s.Verify.Type == VerifyNone && r.TenantFromURL && !s.TrustURLTenant {
		f.must(at(key, "trust_url_tenant"),
			"true for a shared source without verification whose tenant comes from the URL", s.TrustURLTenant)
	}
	s.validateSpread(f, at(key, "spread"))
}

func name(f *Faults, key, got string) {
	if !ValidName(got) {
		f.must(key, "1 to 64 of [A-Za-z0-9_-]", got)
	}
}

func (s *Source) validatePolicies(f *Faults, key string) {
	switch s.OnVerifyFailure {
	case "quarantine", "accept_flag":
		f.notYet(at(key, "on_verify_failure"), s.OnVerifyFailure)
	default:
		f.oneOf(at(key, "on_verify_failure"), s.OnVerifyFailure, DefaultOnVerifyFailure)
	}
	switch s.Durability {
	case "none", "dual":
		f.notYet(at(key, "durability"), s.Durability)
	default:
		f.oneOf(at(key, "durability"), s.Durability, DefaultDurability)
	}
}

func (s *Source) validateForwarding(f *Faults, key string) {
	for i, n := range s.ForwardHeaders {
		if !ValidHeaderName(n) || !Forwardable(n) {
			f.must(at(key, fmt.Sprintf("forward_headers.%d", i)), "a header name that may be forwarded", n)
		}
	}
	f.between(at(key, "max_headers"), int64(s.MaxHeaders), 0, 256)
	f.between(at(key, "forward_headers_max_bytes"), int64(s.ForwardHeadersMaxBytes), 0, 1<<20)
}

// validateSpread holds the rule that hooks which belong together meet in one partition: those of a lane, and those of a
// dedupe key.
func (s *Source) validateSpread(f *Faults, key string) {
	f.between(key, int64(s.Spread), 1, MaxSpread)
	if s.Spread <= 1 || !s.Ordered() {
		return
	}
	if s.Dedupe != nil {
		f.must(key, "1 for a source with both dedupe and an ordered sink", s.Spread)
	}
	if _, one := s.laneKey(); !one {
		f.must(key, "1 for a source whose ordered sinks have different ordering keys", s.Spread)
	}
}

// laneKey is the ordering key of the ordered sinks, if they share one.
func (s *Source) laneKey() (key OrderingKey, one bool) {
	for _, sink := range s.Sinks {
		if !sink.Ordered {
			continue
		}
		if one && sink.OrderingKey != key {
			return OrderingKey{}, false
		}
		key, one = sink.OrderingKey, true
	}
	return key, one
}

func (v Verify) validate(f *Faults, key string) {
	if slices.Contains(verifyNotYet, v.Type) {
		f.notYet(at(key, "type"), v.Type)
		return
	}
	scheme, known := v.SchemeOf()
	if !known && v.Type != VerifyNone {
		f.oneOf(at(key, "type"), v.Type, verifyTypes...)
		return
	}
	if v.Type == VerifyHMAC {
		v.Scheme.validate(f, key)
	} else {
		v.Scheme.absent(f, key, v.Type)
	}
	v.validateSecrets(f, at(key, "secret"), scheme)
	v.validateTolerance(f, at(key, "tolerance_seconds"), scheme)
}

func (v Verify) validateSecrets(f *Faults, key string, scheme Scheme) {
	if v.Type == VerifyNone {
		if len(v.Secrets) > 0 {
			f.must(key, "absent for verify type none", "a secret")
		}
		return
	}
	secretCount(f, key, len(v.Secrets))
	for i, s := range v.Secrets {
		_, err := scheme.key(s)
		secret(f, fmt.Sprintf("%s.%d", key, i), s, err, "base64, with or without whsec_ before it")
	}
}

// secret refuses what is no secret; err is how it decodes to a key.
func secret(f *Faults, key string, s Secret, err error, encoding string) {
	switch text := s.Reveal(); {
	case text == "":
		f.must(key, "non-empty", text)
	case text == Redacted:
		f.must(key, "a secret, since none is stored for it", text)
	case err != nil:
		f.must(key, encoding, Redacted)
	}
}

func secretCount(f *Faults, key string, n int) {
	if n < 1 || n > MaxSecrets {
		f.must(key, fmt.Sprintf("1 to %d secrets", MaxSecrets), fmt.Sprint(n))
	}
}

func (v Verify) validateTolerance(f *Faults, key string, scheme Scheme) {
	seconds := int64(v.Tolerance / time.Second)
	if scheme.Timed() {
		f.between(key, seconds, 1, 7*24*3600)
	} else if seconds != 0 {
		f.must(key, "absent for a signature without a time", seconds)
	}
}

// fields are the scheme's settings by their keys.
func (s Scheme) fields() []struct{ key, value string } {
	return []struct{ key, value string }{
		{"signature_header", s.SignatureHeader}, {"signed", s.Signed}, {"parse", s.Parse}, {"sig_prefix", s.Prefix},
		{"sig_key", s.Key}, {"version", s.Version}, {"hash", s.Hash}, {"encoding", s.Encoding},
		{"secret_decode", s.SecretDecode}, {"timestamp_header", s.TimestampHeader},
	}
}

func (s Scheme) absent(f *Faults, key, verifier string) {
	for _, field := range s.fields() {
		if field.value != "" {
			f.must(at(key, field.key), "absent for verify type "+verifier, field.value)
		}
	}
}

func (s Scheme) validate(f *Faults, key string) {
	if !ValidHeaderName(s.SignatureHeader) {
		f.must(at(key, "signature_header"), "a header name", s.SignatureHeader)
	}
	if s.TimestampHeader != "" && !ValidHeaderName(s.TimestampHeader) {
		f.must(at(key, "timestamp_header"), "a header name", s.TimestampHeader)
	}
	f.oneOf(at(key, "parse"), s.Parse, ParseWhole, ParseCSVPairs, ParseSpaceVersions)
	f.oneOf(at(key, "hash"), s.Hash, "sha256", "sha512", "sha1")
	f.oneOf(at(key, "encoding"), s.Encoding, EncodingHex, EncodingBase64)
	f.oneOf(at(key, "secret_decode"), s.SecretDecode, DecodeRaw, DecodeBase64)
	s.validateParts(f, key)
	s.validateSigned(f, at(key, "signed"))
}

// validateParts holds the settings to the way of parsing that they are for.
func (s Scheme) validateParts(f *Faults, key string) {
	part := func(name, value string, wanted bool) {
		switch {
		case wanted && (value == "" || strings.ContainsAny(value, ",=\" \t")):
			f.must(at(key, name), "a text without comma, equals sign or space for parse "+s.Parse, value)
		case !wanted && value != "":
			f.must(at(key, name), "absent for parse "+s.Parse, value)
		}
	}
	part("sig_key", s.Key, s.Parse == ParseCSVPairs)
	part("version", s.Version, s.Parse == ParseSpaceVersions)
	if !ValidHeaderValue(s.Prefix) {
		f.must(at(key, "sig_prefix"), "visible ASCII", s.Prefix)
	}
}

func (s Scheme) validateSigned(f *Faults, key string) {
	_, ok := Template(s.Signed)
	has := placeholders(s.Signed)
	switch {
	case !ok:
		f.must(key, "a text with the placeholders {body}, {ts} and {header:NAME}", s.Signed)
	case !has.body:
		f.must(key, "a text with {body}, or anybody could change the body", s.Signed)
	case has.ts && !s.Timed():
		f.must(key, "without {ts} unless there is a timestamp_header or parse is csv_pairs", s.Signed)
	case s.TimestampHeader != "" && !has.ts && !has.headers[s.TimestampHeader]:
		f.must(key, "a text with {ts}, or anybody could change the time", s.Signed)
	}
}

func (d *Dedupe) validate(f *Faults, key string) {
	set := 0
	for _, v := range []string{d.Preset, d.Header, d.JSON} {
		if v != "" {
			set++
		}
	}
	if set != 1 {
		f.must(key, "exactly one of preset, header, json", fmt.Sprint(set))
	}
	if d.Preset != "" {
		f.oneOf(at(key, "preset"), d.Preset, presetNames...)
	}
	keyPlace(f, key, d.Header, d.JSON)
	f.between(at(key, "ttl_seconds"), int64(d.TTL/time.Second), 1, 365*24*3600)
}

func keyPlace(f *Faults, key, header, path string) {
	if header != "" && !ValidHeaderName(header) {
		f.must(at(key, "header"), "a header name", header)
	}
	if path != "" && !validPath(path) {
		f.must(at(key, "json"), "a dot path of plain names", path)
	}
}

func (s Sink) validate(f *Faults, key string) {
	if slices.Contains(sinkNotYet, s.Type) {
		f.notYet(at(key, "type"), s.Type)
		return
	}
	f.oneOf(at(key, "type"), s.Type, sinkTypes...)
	if s.Type == SinkHTTP {
		s.HTTP.validate(f, key)
	}
	s.validateOrder(f, key)
}

func (s Sink) validateOrder(f *Faults, key string) {
	switch {
	case s.Ordered && !slices.Contains(sinkOrdered, s.Type):
		f.must(at(key, "ordered"), "false for a type of sink that keeps no order", s.Ordered)
	case !s.Ordered && s.OrderingKey != OrderingKey{}:
		f.must(at(key, "ordering_key"), "absent unless ordered is true", "a key")
	}
	if s.OrderingKey.Header != "" && s.OrderingKey.JSON != "" {
		f.must(at(key, "ordering_key"), "one of header, json", "both")
	}
	keyPlace(f, at(key, "ordering_key"), s.OrderingKey.Header, s.OrderingKey.JSON)
	if h := strings.ToLower(s.OrderingKey.Header); h != "" && !Stored(h) {
		f.must(at(key, "ordering_key.header"), "a header that is stored with the hook", h)
	}
}

func (h HTTP) validate(f *Faults, key string) {
	if fault := urlFault(h.URL); fault != "" {
		f.must(at(key, "url"), "an absolute http or https URL without credentials and fragment", fault)
	}
	f.oneOf(at(key, "method"), h.Method, "post", "put", "patch")
	for _, n := range sortedNames(h.Headers) {
		h.validateHeader(f, at(key, "headers."+n), n)
	}
	f.between(at(key, "timeout_ms"), h.Timeout.Milliseconds(), 1, 600_000)
	f.between(at(key, "max_response_bytes"), int64(h.MaxResponse), 1, DefaultMaxResponse)
	if len(h.Secrets) == 0 && !h.AllowUnsigned {
		f.must(at(key, "secret"), fmt.Sprintf("1 to %d secrets unless allow_unsigned is true", MaxSecrets), "none")
	}
	h.validateSecrets(f, at(key, "secret"))
	if h.CACertFile != "" && !filepath.IsAbs(h.CACertFile) {
		f.must(at(key, "cacertfile"), "an absolute path", h.CACertFile)
	}
}

func (h HTTP) validateHeader(f *Faults, key, name string) {
	if !ValidHeaderName(name) || !Settable(name) {
		f.must(key, "a header name that the delivery does not set itself", name)
	}
	if v := h.Headers[name].Reveal(); !ValidHeaderValue(v) || strings.TrimSpace(v) != v || v == Redacted {
		f.must(key, "visible ASCII without space around it", Redacted)
	}
}

func (h HTTP) validateSecrets(f *Faults, key string) {
	if len(h.Secrets) > MaxSecrets {
		secretCount(f, key, len(h.Secrets))
	}
	for i, s := range h.Secrets {
		_, err := s.SigningKey()
		secret(f, fmt.Sprintf("%s.%d", key, i), s, err, "base64 after whsec_")
	}
}

// urlFault says what is wrong with a sink's URL without repeating it, since it may hold a token.
func urlFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return "an empty text"
	case err != nil || len(text) > 2048 || !ValidHeaderValue(text):
		return "a text that is none"
	case u.Scheme != "http" && u.Scheme != "https":
		return "the scheme " + showText(u.Scheme)
	case u.Hostname() == "":
		return "no host"
	case u.User != nil:
		return "credentials in it"
	case u.Fragment != "":
		return "a fragment in it"
	default:
		return ""
	}
}

func (r Retry) validate(f *Faults, key string) {
	const day = 24 * time.Hour
	base := hook.DefaultRetryPolicy()
	r.between(f, at(key, "base_ms"), r.Base, day)
	r.between(f, at(key, "max_ms"), r.Max, day)
	r.between(f, at(key, "max_elapsed_ms"), r.MaxElapsed, 30*day)
	if r.MaxAttempts != nil {
		f.between(at(key, "max_attempts"), int64(*r.MaxAttempts), 1, 1_000_000)
	}
	overlay(&base.Base, r.Base)
	if r.Max != nil && *r.Max < base.Base {
		f.must(at(key, "max_ms"), fmt.Sprintf("at least base_ms, %d", base.Base.Milliseconds()), r.Max.Milliseconds())
	}
}

func (Retry) between(f *Faults, key string, d *time.Duration, high time.Duration) {
	if d != nil {
		f.between(key, d.Milliseconds(), 1, high.Milliseconds())
	}
}
