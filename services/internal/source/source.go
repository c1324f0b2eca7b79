// Package source is what an operator says about a stream of hooks: how its requests are verified and deduplicated, which
// sinks they go to, and how failed deliveries are tried again. It holds the settings, their strict decoding and
// validation, and the rules that follow from them alone.
package source

import (
	"strings"
	"time"

	"ankusa.dev/services/internal/hook"
)

// Bounds and defaults of a source.
const (
	MaxSecrets = 8
	MaxSinks   = 64
	// MaxSpread is the most partitions that a store can have.
	MaxSpread = 252

	DefaultMaxHeaders      = 64
	DefaultForwardBytes    = 16 << 10
	DefaultTolerance       = 300 * time.Second
	DefaultDedupeTTL       = 72 * time.Hour
	DefaultHTTPTimeout     = 5 * time.Second
	DefaultMaxResponse     = 64 << 10
	DefaultOnVerifyFailure = "reject"
	DefaultDurability      = "wal"
)

// Source is one stream of hooks. It is immutable once it is shared.
type Source struct {
	// Tenant owns the source; Name is unique within the tenant. Both are of 1 to 64 letters, digits, "_" and "-".
	Tenant, Name string
	// Incarnation tells creations of the same name apart. Revision grows with every change. Both are the store's.
	Incarnation uint64
	Revision    hook.Timestamp

	Verify Verify
	// OnVerifyFailure: "reject".
	OnVerifyFailure string
	// Dedupe is nil where every request is stored.
	Dedupe *Dedupe
	Sinks  []Sink
	Retry  Retry
	// ForwardHeaders are the lower-case names that sinks get; nil stands for all that may be forwarded.
	ForwardHeaders []string
	// MaxHeaders and ForwardHeadersMaxBytes cap what is forwarded: fields, and bytes of names and values.
	MaxHeaders, ForwardHeadersMaxBytes int
	// TrustURLTenant allows a shared source without verification to take the tenant of its hooks from the URL.
	TrustURLTenant bool
	// Durability: "wal".
	Durability string
	// Spread is the number of partitions that the hooks of one tenant are spread over, from 1; fixed per incarnation.
	Spread uint32
}

// New returns a source with every default in place and neither verifier nor sinks.
func New(tenant, name string) *Source {
	return &Source{
		Tenant: tenant, Name: name, OnVerifyFailure: DefaultOnVerifyFailure, Durability: DefaultDurability,
		MaxHeaders: DefaultMaxHeaders, ForwardHeadersMaxBytes: DefaultForwardBytes, Spread: 1,
	}
}

// ID is the source's identity on the wire and in keys: its name, or tenant.name where the tenant is not "default".
func (s *Source) ID() string { return ID(s.Tenant, s.Name) }

// Shared says whether the source serves the URLs of every tenant.
func (s *Source) Shared() bool { return s.Tenant == hook.DefaultTenant }

// ID joins owner and name to a source_id.
func ID(tenant, name string) string {
	if tenant == hook.DefaultTenant {
		return name
	}
	return tenant + "." + name
}

// SplitID is the inverse of ID; ok is false for a text that ID never returns.
func SplitID(id string) (tenant, name string, ok bool) {
	tenant, name, dotted := strings.Cut(id, ".")
	if !dotted {
		tenant, name = hook.DefaultTenant, id
	}
	ok = ValidName(tenant) && ValidName(name) && (!dotted || tenant != hook.DefaultTenant)
	return tenant, name, ok
}

// ValidName says whether a text can name a tenant or a source: 1 to 64 of [A-Za-z0-9_-].
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return true
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// Binding is one sink that a hook is owed to.
type Binding struct {
	Key     hook.SinkKey
	Ordered bool
	// Lane of an ordered sink; empty for a hook whose ordering key cannot be read, and for a sink without one.
	Lane string
}

// Bindings lists the sinks that a hook of the tenant is owed to, in the order of the source.
func (s *Source) Bindings(tenant string, h *hook.Hook) []Binding {
	list := make([]Binding, len(s.Sinks))
	id := s.ID()
	for i, sink := range s.Sinks {
		list[i].Key = hook.SinkKey{Tenant: tenant, SourceID: id, Index: uint16(i), Type: sink.Type}
		if list[i].Ordered = sink.Ordered; sink.Ordered {
			list[i].Lane = sink.OrderingKey.Lane(h)
		}
	}
	return list
}

// Ordered says whether any sink is ordered, so that bindings depend on the hook.
func (s *Source) Ordered() bool {
	for _, sink := range s.Sinks {
		if sink.Ordered {
			return true
		}
	}
	return false
}
