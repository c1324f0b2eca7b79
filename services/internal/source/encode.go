package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"ankusa.dev/services/internal/hook"
)

// stored is a source in the store. Spec is the tree that Decode reads.
type stored struct {
	Version     int             `json:"v"`
	Tenant      string          `json:"tenant"`
	Name        string          `json:"name"`
	Incarnation uint64          `json:"incarnation"`
	Revision    hook.Timestamp  `json:"revision"`
	Spec        json.RawMessage `json:"spec"`
}

// storedVersion is the only version of the stored form so far.
const storedVersion = 1

// ErrStored: a stored source cannot be read.
var ErrStored = errors.New("stored source is not readable")

// Marshal returns the stored form, which holds the secrets. Equal sources have equal forms.
func (s *Source) Marshal() ([]byte, error) {
	spec, err := json.Marshal(s.tree(Secret.Reveal))
	if err != nil {
		return nil, fmt.Errorf("encode source %s: %w", s.ID(), err)
	}
	return json.Marshal(stored{
		Version: storedVersion, Tenant: s.Tenant, Name: s.Name,
		Incarnation: s.Incarnation, Revision: s.Revision, Spec: spec,
	})
}

// Unmarshal reads the stored form, without validating what it says: a source that was stored goes on to work. It fails
// with ErrStored.
func Unmarshal(b []byte) (*Source, error) {
	var w stored
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStored, err)
	}
	if w.Version != storedVersion {
		return nil, fmt.Errorf("%w: version must be %d, got %d", ErrStored, storedVersion, w.Version)
	}
	tree, err := ParseJSON(w.Spec)
	if err != nil {
		return nil, fmt.Errorf("%w: source %s: %w", ErrStored, ID(w.Tenant, w.Name), err)
	}
	s, err := Decode("", tree)
	if err != nil {
		return nil, fmt.Errorf("%w: source %s: %w", ErrStored, ID(w.Tenant, w.Name), err)
	}
	s.Tenant, s.Name = w.Tenant, w.Name
	s.Incarnation, s.Revision = w.Incarnation, w.Revision
	return s, nil
}

// Redacted returns the settings as the tree that Decode reads, with every secret as [REDACTED].
func (s *Source) Redacted() map[string]any {
	tree := s.tree(func(Secret) string { return Redacted })
	tree["tenant"], tree["name"] = s.Tenant, s.Name
	return tree
}

// Revealed returns the settings as the tree that Decode reads, secrets included: for sending them to where they are kept.
func (s *Source) Revealed() map[string]any { return s.tree(Secret.Reveal) }

// MarshalJSON shows the settings with every secret as [REDACTED].
func (s *Source) MarshalJSON() ([]byte, error) { return json.Marshal(s.Redacted()) }

// SameSettings says whether two sources say the same, secrets included, whatever their revisions.
func (s *Source) SameSettings(o *Source) bool {
	a, errA := json.Marshal(s.tree(Secret.Reveal))
	b, errB := json.Marshal(o.tree(Secret.Reveal))
	return errA == nil && errB == nil && s.Tenant == o.Tenant && s.Name == o.Name && string(a) == string(b)
}

func (s *Source) tree(show func(Secret) string) map[string]any {
	t := map[string]any{
		"verify": s.Verify.tree(show), "on_verify_failure": s.OnVerifyFailure, "sinks": s.sinkTrees(show),
		"max_headers": s.MaxHeaders, "forward_headers_max_bytes": s.ForwardHeadersMaxBytes,
		"trust_url_tenant": s.TrustURLTenant, "durability": s.Durability, "spread": s.Spread,
	}
	if s.Dedupe != nil {
		t["dedupe"] = s.Dedupe.tree()
	}
	if retry := s.Retry.tree(); len(retry) > 0 {
		t["retry"] = retry
	}
	if s.ForwardHeaders != nil {
		t["forward_headers"] = s.ForwardHeaders
	}
	return t
}

func (v Verify) tree(show func(Secret) string) map[string]any {
	t := map[string]any{"type": v.Type}
	putSecrets(t, v.Secrets, show)
	if v.Tolerance != 0 {
		t["tolerance_seconds"] = int64(v.Tolerance / time.Second)
	}
	for _, field := range v.Scheme.fields() {
		putText(t, field.key, field.value)
	}
	return t
}

func (d *Dedupe) tree() map[string]any {
	t := map[string]any{"ttl_seconds": int64(d.TTL / time.Second)}
	putText(t, "preset", d.Preset)
	putText(t, "header", d.Header)
	putText(t, "json", d.JSON)
	return t
}

func (s *Source) sinkTrees(show func(Secret) string) []any {
	list := make([]any, len(s.Sinks))
	for i := range s.Sinks {
		list[i] = s.Sinks[i].tree(show)
	}
	return list
}

func (s Sink) tree(show func(Secret) string) map[string]any {
	t := map[string]any{"type": s.Type}
	if s.Ordered {
		t["ordered"] = true
	}
	if s.OrderingKey != (OrderingKey{}) {
		key := map[string]any{}
		putText(key, "header", s.OrderingKey.Header)
		putText(key, "json", s.OrderingKey.JSON)
		t["ordering_key"] = key
	}
	if s.Type == SinkHTTP {
		s.HTTP.put(t, show)
	}
	return t
}

func (h HTTP) put(t map[string]any, show func(Secret) string) {
	t["url"], t["method"] = h.URL, h.Method
	t["timeout_ms"], t["max_response_bytes"] = h.Timeout.Milliseconds(), h.MaxResponse
	putSecrets(t, h.Secrets, show)
	putText(t, "cacertfile", h.CACertFile)
	if h.AllowUnsigned {
		t["allow_unsigned"] = true
	}
	if h.AllowInsecureTLS {
		t["allow_insecure_tls"] = true
	}
	if len(h.Headers) > 0 {
		headers := map[string]any{}
		for name, value := range h.Headers {
			headers[name] = show(value)
		}
		t["headers"] = headers
	}
}

func (r Retry) tree() map[string]any {
	t := map[string]any{}
	for key, d := range map[string]*time.Duration{"base_ms": r.Base, "max_ms": r.Max, "max_elapsed_ms": r.MaxElapsed} {
		if d != nil {
			t[key] = d.Milliseconds()
		}
	}
	if r.MaxAttempts != nil {
		t["max_attempts"] = *r.MaxAttempts
	}
	if r.Jitter != nil {
		t["jitter"] = *r.Jitter
	}
	return t
}

func putText(t map[string]any, key, value string) {
	if value != "" {
		t[key] = value
	}
}

func putSecrets(t map[string]any, list []Secret, show func(Secret) string) {
	if len(list) == 0 {
		return
	}
	shown := make([]string, len(list))
	for i, s := range list {
		shown[i] = show(s)
	}
	t["secret"] = shown
}

func sortedNames(m map[string]Secret) []string { return slices.Sorted(maps.Keys(m)) }
