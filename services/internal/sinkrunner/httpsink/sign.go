package httpsink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"ankusa.dev/services/internal/source"
)

// signature is the value of the Standard Webhooks headers beside the id; its own value is empty for an unsigned sink.
type signature struct{ timestamp, value string }

// sign signs a body with every secret of the sink, newest first. fault is the reason why the delivery can never be
// signed as it must be.
func sign(set *source.HTTP, id string, body []byte, now time.Time) (s signature, fault string) {
	if len(set.Secrets) == 0 {
		if set.AllowUnsigned {
			return s, ""
		}
		return s, "unsigned_sink"
	}
	s.timestamp = strconv.FormatInt(now.Unix(), 10)
	prefix := []byte(id + "." + s.timestamp + ".")
	var value strings.Builder
	for i, secret := range set.Secrets {
		key, err := secret.SigningKey()
		if err != nil || len(key) == 0 {
			return signature{}, "bad_secret"
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(prefix)
		mac.Write(body)
		if i > 0 {
			value.WriteByte(' ')
		}
		value.WriteString("v1,")
		value.WriteString(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	s.value = value.String()
	return s, ""
}
