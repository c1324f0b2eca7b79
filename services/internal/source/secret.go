package source

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Redacted stands for a secret wherever one would be shown.
const Redacted = "[REDACTED]"

// Secret is a text that no formatting, logging or encoding shows. The zero value is empty.
type Secret struct{ text *string } // a pointer: even a formatter that looks at unexported fields sees an address

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text, for use as a key and for the stored form only.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Equal compares two secrets in a time that depends on their lengths only.
func (s Secret) Equal(o Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(o.Reveal())) == 1
}

// String hides the text.
func (Secret) String() string { return Redacted }

// GoString hides the text.
func (Secret) GoString() string { return Redacted }

// Format hides the text, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Redacted)) }

// MarshalText hides the text from JSON, YAML and structured logs.
func (Secret) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// errBadSecret: a secret is not of the encoding that its user demands. It does not say what the secret is.
var errBadSecret = errors.New("secret does not decode")

const whsec = "whsec_"

// SigningKey is the key that a sink signs with: a secret that begins with whsec_ is strict padded base64 after it, any
// other is its own bytes.
func (s Secret) SigningKey() ([]byte, error) {
	text, encoded := strings.CutPrefix(s.Reveal(), whsec)
	if !encoded {
		return []byte(text), nil
	}
	return decodeKey(text)
}

// base64Key is the key of a verifier whose secrets are base64, with or without whsec_ before it.
func (s Secret) base64Key() ([]byte, error) { return decodeKey(strings.TrimPrefix(s.Reveal(), whsec)) }

func decodeKey(text string) ([]byte, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) == 0 || strings.ContainsAny(text, "\r\n") {
		return nil, errBadSecret
	}
	return key, nil
}

func secrets(texts []string) []Secret {
	if texts == nil {
		return nil
	}
	list := make([]Secret, len(texts))
	for i, t := range texts {
		list[i] = NewSecret(t)
	}
	return list
}
