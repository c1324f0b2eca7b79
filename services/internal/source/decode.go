package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"ankusa.dev/services/internal/hook"
)

// Text is a scalar of a tree whose kind is for the field to decide, such as the value of a variable. Faults never show
// it.
type Text string

// Decode reads one source from a tree of map[string]any, []any and scalars, as a YAML or JSON decoder makes it, without
// validating it. key is the dotted key of the tree. The name may be set by the caller afterwards; the tenant is "default"
// where the tree has none. Unknown keys and values of a wrong kind are faults; all of them are returned, as Faults,
// together with what could be read.
func Decode(key string, tree any) (*Source, error) {
	var f Faults
	s := decodeSource(&f, key, tree)
	return s, f.err()
}

// DecodeAll reads and validates a mapping of sources by name. A source may name itself otherwise with "name", so that
// two tenants can have the same. The result is in the order of the keys.
func DecodeAll(key string, tree any, r Rules) ([]*Source, error) {
	var f Faults
	entries, ok := tree.(map[string]any)
	if !ok && tree != nil {
		f.must(key, "a mapping of sources", kindOf(tree))
	}
	var list []*Source
	seen := map[string]string{}
	for _, name := range sortedKeys(entries) {
		at := at(key, name)
		s := decodeSource(&f, at, entries[name])
		if s.Name == "" {
			s.Name = name
		}
		s.validate(&f, at, r)
		if first, twice := seen[s.ID()]; twice {
			f.must(at, "a source of its own", "the name of "+first)
		}
		seen[s.ID()] = at
		list = append(list, s)
	}
	return list, f.err()
}

// ErrNotJSON: a text is not one JSON value without repeated keys.
var ErrNotJSON = errors.New("not one JSON value")

// ParseJSON reads one JSON value into the tree that Decode takes. It fails with ErrNotJSON and says what is wrong
// without repeating what it read.
func ParseJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	tree, err := jsonValue(d)
	if err != nil {
		return nil, fmt.Errorf("%w at byte %d: %w", ErrNotJSON, d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: more follows at byte %d", ErrNotJSON, d.InputOffset())
	}
	return tree, nil
}

func jsonValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return jsonObject(d)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := jsonValue(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	default:
		return token, nil
	}
}

func jsonObject(d *json.Decoder) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string)
		if _, twice := object[key]; twice {
			return nil, errors.New("a key stands twice")
		}
		if object[key], err = jsonValue(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func decodeSource(f *Faults, key string, tree any) *Source {
	o := objectOf(f, key, tree)
	defer o.close()
	s := New(o.text("tenant", hook.DefaultTenant), o.text("name", ""))
	s.Verify = decodeVerify(o.object("verify"))
	s.OnVerifyFailure = o.text("on_verify_failure", s.OnVerifyFailure)
	s.Dedupe = decodeDedupe(o.optional("dedupe"))
	s.Sinks = decodeSinks(o)
	s.Retry = decodeRetry(o.optional("retry"))
	s.ForwardHeaders = lower(o.texts("forward_headers"))
	s.MaxHeaders = int(o.whole("max_headers", int64(s.MaxHeaders)))
	s.ForwardHeadersMaxBytes = int(o.whole("forward_headers_max_bytes", int64(s.ForwardHeadersMaxBytes)))
	s.TrustURLTenant = o.boolean("trust_url_tenant")
	s.Durability = o.text("durability", s.Durability)
	s.Spread = uint32(o.whole("spread", int64(s.Spread)))
	o.notYet("store_headers", "rate_limit", "claim_check", "ip_rules")
	return s
}

func decodeVerify(o *object) Verify {
	defer o.close()
	v := Verify{Type: o.text("type", "")}
	if !slices.Contains(verifyTypes, v.Type) {
		o.ignoreRest()
		return v
	}
	v.Secrets = o.secrets("secret")
	v.Scheme = Scheme{
		SignatureHeader: strings.ToLower(o.text("signature_header", "")),
		Signed:          o.text("signed", ""), Parse: o.text("parse", ""),
		Prefix: o.text("sig_prefix", ""), Key: o.text("sig_key", ""), Version: o.text("version", ""),
		Hash: o.text("hash", ""), Encoding: o.text("encoding", ""), SecretDecode: o.text("secret_decode", ""),
		TimestampHeader: strings.ToLower(o.text("timestamp_header", "")),
	}
	v.SetDefaults()
	v.Tolerance = o.seconds("tolerance_seconds", v.Tolerance)
	return v
}

func decodeDedupe(o *object) *Dedupe {
	if o == nil {
		return nil
	}
	defer o.close()
	return &Dedupe{
		Preset: o.text("preset", ""), Header: strings.ToLower(o.text("header", "")), JSON: o.text("json", ""),
		TTL: o.seconds("ttl_seconds", DefaultDedupeTTL),
	}
}

func decodeSinks(o *object) []Sink {
	var sinks []Sink
	for i, tree := range o.list("sinks") {
		sinks = append(sinks, decodeSink(objectOf(o.faults, at(o.key, fmt.Sprintf("sinks.%d", i)), tree)))
	}
	return sinks
}

func decodeSink(o *object) Sink {
	defer o.close()
	s := Sink{Type: o.text("type", "")}
	if !slices.Contains(sinkTypes, s.Type) {
		o.ignoreRest()
		return s
	}
	s.Ordered = o.boolean("ordered")
	if k := o.optional("ordering_key"); k != nil {
		s.OrderingKey = OrderingKey{Header: strings.ToLower(k.text("header", "")), JSON: k.text("json", "")}
		if s.OrderingKey == (OrderingKey{}) {
			o.faults.must(k.key, "one of header, json", "neither")
		}
		k.close()
	}
	if s.Type == SinkHTTP {
		s.HTTP = decodeHTTP(o)
	}
	return s
}

func decodeHTTP(o *object) HTTP {
	h := DefaultHTTP()
	h.URL = o.text("url", "")
	h.Method = strings.ToLower(o.text("method", h.Method))
	h.Headers = o.headers("headers")
	h.Timeout = o.millis("timeout_ms", h.Timeout)
	h.Secrets = o.secrets("secret")
	h.AllowUnsigned = o.boolean("allow_unsigned")
	h.MaxResponse = int(o.whole("max_response_bytes", int64(h.MaxResponse)))
	h.CACertFile = o.text("cacertfile", "")
	h.AllowInsecureTLS = o.boolean("allow_insecure_tls")
	o.notYet("pool")
	return h
}

func decodeRetry(o *object) (r Retry) {
	if o == nil {
		return r
	}
	defer o.close()
	if o.has("base_ms") {
		r.Base = new(o.millis("base_ms", 0))
	}
	if o.has("max_ms") {
		r.Max = new(o.millis("max_ms", 0))
	}
	if o.has("max_attempts") {
		r.MaxAttempts = new(uint32(o.whole("max_attempts", 0)))
	}
	if o.has("jitter") {
		r.Jitter = new(o.boolean("jitter"))
	}
	if o.has("max_elapsed_ms") {
		r.MaxElapsed = new(o.millis("max_elapsed_ms", 0))
	}
	return r
}

func lower(list []string) []string {
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list
}
