// Package verify checks the signatures of requests, over the bytes as they were received.
package verify

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what some providers sign with
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

// Reason says why a request was not verified; it is shown to the sender. The empty reason is success.
type Reason string

// Reasons, in the order of the checks that they come from.
const (
	// MissingSignature: a header that the signature needs is absent or empty.
	MissingSignature Reason = "missing_signature"
	// MalformedSignature: the signature header or the signed time cannot be parsed.
	MalformedSignature Reason = "malformed_signature"
	// BadScheme: the header holds no signature of the scheme, prefix or version that counts.
	BadScheme Reason = "bad_scheme"
	// OutOfTolerance: the signed time is too far from now, in either direction.
	OutOfTolerance Reason = "timestamp_out_of_tolerance"
	// BadSecret: a secret of the source does not decode, so nothing can be verified.
	BadSecret Reason = "bad_secret"
	// NoMatch: no signature is that of any secret.
	NoMatch Reason = "no_match"
)

// Verifier checks the requests of one source. It is safe for concurrent use.
type Verifier struct {
	scheme    source.Scheme
	name      string
	pieces    []piece
	macs      []*sync.Pool // of hash.Hash, one per secret
	tolerance time.Duration
	timed     bool
	badSecret bool
}

type piece struct {
	kind source.PieceKind
	text string
	raw  []byte
}

// New makes the verifier of a source's settings; nil stands for a source that nothing verifies. Settings that validation
// would refuse make a verifier that lets nothing pass.
func New(v source.Verify) *Verifier {
	scheme, ok := v.SchemeOf()
	if !ok && v.Type == source.VerifyNone {
		return nil
	}
	out := &Verifier{scheme: scheme, name: "hmac_" + scheme.Hash, tolerance: v.Tolerance, timed: scheme.Timed()}
	pieces, parsed := source.Template(scheme.Signed)
	for _, p := range pieces {
		out.pieces = append(out.pieces, piece{kind: p.Kind, text: p.Text, raw: []byte(p.Text)})
	}
	keys, err := v.Keys()
	newHash := hashes[scheme.Hash]
	out.badSecret = !ok || !parsed || err != nil || newHash == nil
	for _, key := range keys {
		out.macs = append(out.macs, &sync.Pool{New: func() any { return hmac.New(newHash, key) }})
	}
	return out
}

var hashes = map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

// Scheme names what is computed, for metrics: "hmac_sha256".
func (v *Verifier) Scheme() string { return v.name }

// Verify checks a hook's headers and body at a time. The checks run in one order: header, parse, time window, template,
// keys, comparison. Any signature of the header may match any secret; the time that the comparison takes tells nothing
// about either.
func (v *Verifier) Verify(h *hook.Hook, now time.Time) Reason {
	header, _ := h.Header(v.scheme.SignatureHeader)
	if header == "" {
		return MissingSignature
	}
	found, stamp, reason := v.parse(header)
	if reason != "" {
		return reason
	}
	if v.timed {
		if stamp, reason = v.time(h, stamp, now); reason != "" {
			return reason
		}
	}
	for _, p := range v.pieces {
		if p.kind == source.PieceHeader {
			if value, _ := h.Header(p.text); value == "" {
				return MissingSignature
			}
		}
	}
	if v.badSecret {
		return BadSecret
	}
	return v.compare(h, found, stamp)
}

// parse finds the signatures that count, and the signed time where the header holds it.
func (v *Verifier) parse(header string) (found []string, stamp string, reason Reason) {
	switch v.scheme.Parse {
	case source.ParseCSVPairs:
		found, stamp, reason = v.pairs(header)
	case source.ParseSpaceVersions:
		found, reason = v.versions(header)
	default:
		found = v.take(nil, header)
	}
	if reason == "" && len(found) == 0 {
		reason = BadScheme
	}
	return found, stamp, reason
}

func (v *Verifier) pairs(header string) (found []string, stamp string, reason Reason) {
	for pair := range strings.SplitSeq(header, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case !ok:
			return nil, "", MalformedSignature
		case key == v.scheme.Key:
			found = v.take(found, value)
		case key == "t" && stamp == "":
			stamp = value
		}
	}
	return found, stamp, ""
}

func (v *Verifier) versions(header string) (found []string, reason Reason) {
	for entry := range strings.FieldsSeq(header) {
		version, value, ok := strings.Cut(entry, ",")
		if !ok {
			return nil, MalformedSignature
		}
		if version == v.scheme.Version {
			found = v.take(found, value)
		}
	}
	return found, ""
}

func (v *Verifier) take(found []string, value string) []string {
	signature, ok := strings.CutPrefix(value, v.scheme.Prefix)
	if !ok || signature == "" {
		return found
	}
	return append(found, signature)
}

func (v *Verifier) time(h *hook.Hook, stamp string, now time.Time) (string, Reason) {
	if v.scheme.TimestampHeader != "" {
		if stamp, _ = h.Header(v.scheme.TimestampHeader); stamp == "" {
			return "", MissingSignature
		}
	}
	seconds, ok := digits(stamp)
	if !ok {
		return "", MalformedSignature
	}
	if distance := now.Unix() - seconds; max(distance, -distance) > int64(v.tolerance/time.Second) {
		return "", OutOfTolerance
	}
	return stamp, ""
}

// digits reads 1 to 15 decimal digits.
func digits(s string) (int64, bool) {
	if len(s) > 15 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func (v *Verifier) compare(h *hook.Hook, found []string, stamp string) Reason {
	match := 0
	for _, macs := range v.macs {
		mac := macs.Get().(hash.Hash)
		mac.Reset()
		v.sign(mac, h, stamp)
		var room [sha512.Size]byte
		var text [2 * sha512.Size]byte
		want := v.encode(text[:0], mac.Sum(room[:0]))
		for _, got := range found {
			match |= subtle.ConstantTimeCompare(want, []byte(got))
		}
		macs.Put(mac)
	}
	if match == 0 {
		return NoMatch
	}
	return ""
}

func (v *Verifier) sign(mac hash.Hash, h *hook.Hook, stamp string) {
	for _, p := range v.pieces {
		switch p.kind {
		case source.PieceText:
			mac.Write(p.raw)
		case source.PieceBody:
			mac.Write(h.Body)
		case source.PieceTime:
			mac.Write([]byte(stamp))
		case source.PieceHeader:
			value, _ := h.Header(p.text)
			mac.Write([]byte(value))
		}
	}
}

func (v *Verifier) encode(text, sum []byte) []byte {
	if v.scheme.Encoding == source.EncodingBase64 {
		return base64.StdEncoding.AppendEncode(text, sum)
	}
	return hex.AppendEncode(text, sum)
}
