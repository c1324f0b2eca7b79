package source

import (
	"cmp"
	"time"
)

// Types of verifiers.
const (
	VerifyNone             = "none"
	VerifyStripe           = "stripe"
	VerifyGitHub           = "github"
	VerifyStandardWebhooks = "standard_webhooks"
	VerifyShopify          = "shopify"
	VerifySlack            = "slack"
	VerifyHMAC             = "hmac"
)

var (
	verifyTypes = []string{
		VerifyNone, VerifyStripe, VerifyGitHub, VerifyStandardWebhooks, VerifyShopify, VerifySlack, VerifyHMAC,
	}
	verifyNotYet = []string{"ed25519", "rsa", "bearer", "mtls"}
)

// Verify says how requests are verified.
type Verify struct {
	Type string
	// Secrets, newest first; all of them are tried. None for VerifyNone, else 1 to MaxSecrets.
	Secrets []Secret
	// Tolerance is the longest distance between the signed time and now, either way. Zero for types without a time.
	Tolerance time.Duration
	// Scheme of VerifyHMAC; zero for every other type.
	Scheme Scheme
}

// Ways to find signatures in a header.
const (
	// ParseWhole: the header is one signature.
	ParseWhole = "whole"
	// ParseCSVPairs: the header is key=value pairs between commas; the pair "t" holds the signed time.
	ParseCSVPairs = "csv_pairs"
	// ParseSpaceVersions: the header is version,signature entries between spaces.
	ParseSpaceVersions = "space_versions"
)

// Encodings of signatures and secrets.
const (
	EncodingHex    = "hex"
	EncodingBase64 = "base64"
	DecodeRaw      = "raw"
	DecodeBase64   = "whsec_base64"
)

// Scheme describes an HMAC signature.
type Scheme struct {
	SignatureHeader string
	// Signed is what the signature is over: text with {body}, {ts} and {header:NAME}.
	Signed string
	Parse  string
	// Prefix stands before every signature.
	Prefix string
	// Key of the signature pairs, for ParseCSVPairs.
	Key string
	// Version of the entries that count, for ParseSpaceVersions.
	Version      string
	Hash         string
	Encoding     string
	SecretDecode string
	// TimestampHeader holds the signed time in seconds since the Unix epoch, or is empty.
	TimestampHeader string
}

// defaultScheme holds the defaults of VerifyHMAC.
func defaultScheme() Scheme {
	return Scheme{Signed: "{body}", Parse: ParseWhole, Hash: "sha256", Encoding: EncodingHex, SecretDecode: DecodeRaw}
}

// SetDefaults fills the empty fields that have a default for the verifier's type.
func (v *Verify) SetDefaults() {
	if s, d := &v.Scheme, defaultScheme(); v.Type == VerifyHMAC {
		s.Signed, s.Parse = cmp.Or(s.Signed, d.Signed), cmp.Or(s.Parse, d.Parse)
		s.Hash, s.Encoding = cmp.Or(s.Hash, d.Hash), cmp.Or(s.Encoding, d.Encoding)
		s.SecretDecode = cmp.Or(s.SecretDecode, d.SecretDecode)
	}
	if scheme, ok := v.SchemeOf(); ok && scheme.Timed() && v.Tolerance == 0 {
		v.Tolerance = DefaultTolerance
	}
}

// Timed says whether the signature covers a time, so that a tolerance applies.
func (s Scheme) Timed() bool {
	return s.TimestampHeader != "" || s.Parse == ParseCSVPairs && placeholders(s.Signed).ts
}

// SchemeOf is the scheme of the verifier's type: its own for VerifyHMAC, a provider's for the others. ok is false for
// VerifyNone and for types that there are none of.
func (v Verify) SchemeOf() (s Scheme, ok bool) {
	s = defaultScheme()
	switch v.Type {
	case VerifyHMAC:
		s = v.Scheme
	case VerifyGitHub:
		s.SignatureHeader, s.Prefix = "x-hub-signature-256", "sha256="
	case VerifyShopify:
		s.SignatureHeader, s.Encoding = "x-shopify-hmac-sha256", EncodingBase64
	case VerifySlack:
		s.SignatureHeader, s.TimestampHeader = "x-slack-signature", "x-slack-request-timestamp"
		s.Prefix, s.Signed = "v0=", "v0:{ts}:{body}"
	case VerifyStripe:
		s.SignatureHeader, s.Parse, s.Key, s.Signed = "stripe-signature", ParseCSVPairs, "v1", "{ts}.{body}"
	case VerifyStandardWebhooks:
		s.SignatureHeader, s.TimestampHeader = "webhook-signature", "webhook-timestamp"
		s.Parse, s.Version, s.Signed = ParseSpaceVersions, "v1", "{header:webhook-id}.{ts}.{body}"
		s.Encoding, s.SecretDecode = EncodingBase64, DecodeBase64
	default:
		return Scheme{}, false
	}
	return s, true
}

// Keys are the HMAC keys of the secrets, in their order. It fails where one of them does not decode.
func (v Verify) Keys() ([][]byte, error) {
	scheme, _ := v.SchemeOf()
	keys := make([][]byte, 0, len(v.Secrets))
	for _, s := range v.Secrets {
		key, err := scheme.key(s)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (s Scheme) key(secret Secret) ([]byte, error) {
	if s.SecretDecode == DecodeBase64 {
		return secret.base64Key()
	}
	if secret.Reveal() == "" {
		return nil, errBadSecret
	}
	return []byte(secret.Reveal()), nil
}
