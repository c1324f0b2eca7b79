// Package sourcepb maps sources to and from their form in the admin API.
package sourcepb

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"

	"ankusa.dev/services/internal/source"
)

// maxMillis is the largest number of milliseconds that is kept as it is; validation refuses far smaller ones.
const maxMillis = 1 << 40

// From reads a new source of the tenant. It does not validate: what the message cannot say is left for
// source.Source.Validate to refuse. Fields that are output only are ignored. p may be nil.
func From(p *adminv1.Source, tenant, name string) *source.Source {
	s := source.New(tenant, name)
	s.Verify = fromVerify(p.GetVerify())
	s.OnVerifyFailure = cmp.Or(p.GetOnVerifyFailure(), s.OnVerifyFailure)
	s.Dedupe = fromDedupe(p.GetDedupe())
	for _, sink := range p.GetSinks() {
		s.Sinks = append(s.Sinks, fromSink(sink))
	}
	s.Retry = fromRetry(p.GetRetry())
	if f := p.GetForwardHeaders(); f != nil {
		s.ForwardHeaders = make([]string, len(f.GetNames()))
		for i, n := range f.GetNames() {
			s.ForwardHeaders[i] = strings.ToLower(n)
		}
	}
	s.MaxHeaders = int(number(p.GetMaxHeaders(), p != nil && p.MaxHeaders != nil, uint32(s.MaxHeaders)))
	s.ForwardHeadersMaxBytes = int(number(p.GetForwardHeadersMaxBytes(), p != nil && p.ForwardHeadersMaxBytes != nil,
		uint32(s.ForwardHeadersMaxBytes)))
	s.TrustURLTenant = p.GetTrustUrlTenant()
	s.Durability = cmp.Or(p.GetDurability(), s.Durability)
	s.Spread = number(p.GetSpread(), p != nil && p.Spread != nil, s.Spread)
	return s
}

// Replacement reads a source that is to replace old, whose secrets and spread stay where the message leaves them out.
// It returns what is wrong with the replacement as such; validation is left to the caller.
func Replacement(p *adminv1.Source, old *source.Source) (*source.Source, error) {
	s := From(p, old.Tenant, old.Name)
	s.Incarnation, s.Revision = old.Incarnation, old.Revision
	s.KeepSecrets(old)
	if p == nil || p.Spread == nil {
		s.Spread = old.Spread
	}
	if s.Spread != old.Spread {
		return s, source.Faults{{Key: "spread", Problem: "must be " + strconv.FormatUint(uint64(old.Spread), 10) +
			" for the life of the source, got " + strconv.FormatUint(uint64(s.Spread), 10)}}
	}
	return s, nil
}

func fromVerify(p *adminv1.Verify) source.Verify {
	v := source.Verify{
		Type: p.GetType(), Secrets: hide(p.GetSecret()),
		Scheme: source.Scheme{
			SignatureHeader: strings.ToLower(p.GetSignatureHeader()), Signed: p.GetSigned(), Parse: p.GetParse(),
			Prefix: p.GetSigPrefix(), Key: p.GetSigKey(), Version: p.GetVersion(), Hash: p.GetHash(),
			Encoding: p.GetEncoding(), SecretDecode: p.GetSecretDecode(),
			TimestampHeader: strings.ToLower(p.GetTimestampHeader()),
		},
	}
	v.SetDefaults()
	if p != nil && p.ToleranceSeconds != nil {
		v.Tolerance = time.Duration(p.GetToleranceSeconds()) * time.Second
	}
	return v
}

func fromDedupe(p *adminv1.Dedupe) *source.Dedupe {
	if p == nil {
		return nil
	}
	ttl := number(p.GetTtlSeconds(), p.TtlSeconds != nil, uint32(source.DefaultDedupeTTL/time.Second))
	return &source.Dedupe{
		Preset: p.GetPreset(), Header: strings.ToLower(p.GetHeader()), JSON: p.GetJson(),
		TTL: time.Duration(ttl) * time.Second,
	}
}

func fromSink(p *adminv1.Sink) source.Sink {
	s := source.Sink{
		Type: p.GetType(), Ordered: p.GetOrdered(),
		OrderingKey: source.OrderingKey{
			Header: strings.ToLower(p.GetOrderingKey().GetHeader()), JSON: p.GetOrderingKey().GetJson(),
		},
	}
	s.HTTP = source.HTTP{
		URL: p.GetUrl(), Method: strings.ToLower(p.GetMethod()), Secrets: hide(p.GetSecret()),
		AllowUnsigned: p.GetAllowUnsigned(), CACertFile: p.GetCacertfile(), AllowInsecureTLS: p.GetAllowInsecureTls(),
		Headers: hideHeaders(p.GetHeaders()),
	}
	if s.Type == source.SinkHTTP {
		d := source.DefaultHTTP()
		s.HTTP.Method = cmp.Or(s.HTTP.Method, d.Method)
		s.HTTP.Timeout, s.HTTP.MaxResponse = d.Timeout, d.MaxResponse
	}
	if p.TimeoutMs != nil {
		s.HTTP.Timeout = millis(uint64(p.GetTimeoutMs()))
	}
	if p.MaxResponseBytes != nil {
		s.HTTP.MaxResponse = int(p.GetMaxResponseBytes())
	}
	return s
}

func hideHeaders(headers map[string]string) map[string]source.Secret {
	if len(headers) == 0 {
		return nil
	}
	hidden := make(map[string]source.Secret, len(headers))
	for name, value := range headers {
		hidden[strings.ToLower(name)] = source.NewSecret(value)
	}
	return hidden
}

func fromRetry(p *adminv1.Retry) (r source.Retry) {
	if p == nil {
		return r
	}
	if p.BaseMs != nil {
		r.Base = new(millis(uint64(p.GetBaseMs())))
	}
	if p.MaxMs != nil {
		r.Max = new(millis(uint64(p.GetMaxMs())))
	}
	if p.MaxElapsedMs != nil {
		r.MaxElapsed = new(millis(p.GetMaxElapsedMs()))
	}
	if p.MaxAttempts != nil {
		r.MaxAttempts = new(p.GetMaxAttempts())
	}
	if p.Jitter != nil {
		r.Jitter = new(p.GetJitter())
	}
	return r
}

// To shows a source, with every secret as [REDACTED].
func To(s *source.Source) *adminv1.Source {
	p := &adminv1.Source{
		Name: s.Name, Tenant: s.Tenant, SourceId: s.ID(), Verify: toVerify(s.Verify), OnVerifyFailure: s.OnVerifyFailure,
		Dedupe: toDedupe(s.Dedupe), Retry: toRetry(s.Retry), MaxHeaders: new(uint32(s.MaxHeaders)),
		ForwardHeadersMaxBytes: new(uint32(s.ForwardHeadersMaxBytes)), TrustUrlTenant: s.TrustURLTenant,
		Durability: s.Durability, Spread: new(s.Spread), Revision: strconv.FormatUint(uint64(s.Revision), 10),
	}
	for _, sink := range s.Sinks {
		p.Sinks = append(p.Sinks, toSink(sink))
	}
	if s.ForwardHeaders != nil {
		p.ForwardHeaders = &adminv1.HeaderNames{Names: s.ForwardHeaders}
	}
	return p
}

func toVerify(v source.Verify) *adminv1.Verify {
	p := &adminv1.Verify{
		Type: v.Type, Secret: redact(v.Secrets), SignatureHeader: v.Scheme.SignatureHeader, Signed: v.Scheme.Signed,
		Parse: v.Scheme.Parse, SigPrefix: v.Scheme.Prefix, SigKey: v.Scheme.Key, Version: v.Scheme.Version,
		Hash: v.Scheme.Hash, Encoding: v.Scheme.Encoding, SecretDecode: v.Scheme.SecretDecode,
		TimestampHeader: v.Scheme.TimestampHeader,
	}
	if v.Tolerance != 0 {
		p.ToleranceSeconds = new(uint32(v.Tolerance / time.Second))
	}
	return p
}

func toDedupe(d *source.Dedupe) *adminv1.Dedupe {
	if d == nil {
		return nil
	}
	return &adminv1.Dedupe{
		Preset: d.Preset, Header: d.Header, Json: d.JSON, TtlSeconds: new(uint32(d.TTL / time.Second)),
	}
}

func toSink(s source.Sink) *adminv1.Sink {
	p := &adminv1.Sink{Type: s.Type, Ordered: s.Ordered}
	if s.OrderingKey != (source.OrderingKey{}) {
		p.OrderingKey = &adminv1.OrderingKey{Header: s.OrderingKey.Header, Json: s.OrderingKey.JSON}
	}
	if s.Type != source.SinkHTTP {
		return p
	}
	h := s.HTTP
	p.Url, p.Method, p.Secret = h.URL, h.Method, redact(h.Secrets)
	p.TimeoutMs, p.MaxResponseBytes = new(uint32(h.Timeout.Milliseconds())), new(uint32(h.MaxResponse))
	p.AllowUnsigned, p.Cacertfile, p.AllowInsecureTls = h.AllowUnsigned, h.CACertFile, h.AllowInsecureTLS
	if len(h.Headers) > 0 {
		p.Headers = make(map[string]string, len(h.Headers))
		for name := range h.Headers {
			p.Headers[name] = source.Redacted
		}
	}
	return p
}

func toRetry(r source.Retry) *adminv1.Retry {
	if r == (source.Retry{}) {
		return nil
	}
	p := &adminv1.Retry{MaxAttempts: r.MaxAttempts, Jitter: r.Jitter}
	if r.Base != nil {
		p.BaseMs = new(uint32(r.Base.Milliseconds()))
	}
	if r.Max != nil {
		p.MaxMs = new(uint32(r.Max.Milliseconds()))
	}
	if r.MaxElapsed != nil {
		p.MaxElapsedMs = new(uint64(r.MaxElapsed.Milliseconds()))
	}
	return p
}

func millis(n uint64) time.Duration { return time.Duration(min(n, maxMillis)) * time.Millisecond }

func number(value uint32, set bool, absent uint32) uint32 {
	if set {
		return min(value, math.MaxInt32)
	}
	return absent
}

func hide(texts []string) []source.Secret {
	var list []source.Secret
	for _, t := range texts {
		list = append(list, source.NewSecret(t))
	}
	return list
}

func redact(list []source.Secret) []string {
	var shown []string
	for range list {
		shown = append(shown, source.Redacted)
	}
	return shown
}
