package httpsink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"sync"
	"time"

	"ankusa.dev/services/internal/source"
)

// signature is the value of the Standard Webhooks headers beside the id; its own value is empty for an unsigned sink.
type signature struct{ timestamp, value string }

// sign signs a body with every secret of the sink, newest first. fault is the reason why the delivery can never be signed
// as it must be.
func (s *Sink) sign(set *source.HTTP, id string, body []byte, now time.Time) (g signature, fault string) {
	if len(set.Secrets) == 0 {
		if set.AllowUnsigned {
			return g, ""
		}
		return g, "unsigned_sink"
	}
	g.timestamp = strconv.FormatInt(now.Unix(), 10)
	value := make([]byte, 0, len(set.Secrets)*signatureSize)
	for i, secret := range set.Secrets {
		known, err := s.signers.of(secret.Reveal(), func(string) (*signer, error) { return newSigner(secret) })
		if err != nil {
			return signature{}, "bad_secret"
		}
		if i > 0 {
			value = append(value, ' ')
		}
		value = known.sign(value, id, g.timestamp, body)
	}
	g.value = string(value)
	return g, ""
}

// signatureSize is what one secret adds to the header.
const signatureSize = len(" v1,") + (sha256.Size+2)/3*4

var errNoKey = errors.New("secret without a key")

// signer signs with one secret. It keeps what the hash makes of the key.
type signer struct {
	key  []byte
	macs sync.Pool // of hash.Hash
}

func newSigner(secret source.Secret) (*signer, error) {
	key, err := secret.SigningKey()
	if err == nil && len(key) == 0 {
		err = errNoKey
	}
	return &signer{key: key}, err
}

// sign appends a signature of Standard Webhooks: over id, timestamp and body.
func (g *signer) sign(to []byte, id, timestamp string, body []byte) []byte {
	mac, ok := g.macs.Get().(hash.Hash)
	if !ok {
		mac = hmac.New(sha256.New, g.key)
	}
	defer g.macs.Put(mac)
	mac.Reset()
	var room [128]byte
	head := append(append(append(append(room[:0], id...), '.'), timestamp...), '.')
	mac.Write(head)
	mac.Write(body)
	return base64.StdEncoding.AppendEncode(append(to, "v1,"...), mac.Sum(room[:0]))
}
