package source

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"ankusa.dev/services/internal/hook"
)

// maxKey is the longest key that is kept as it is. A longer one is kept as its hash, and so is a dedupe key that no
// header could carry.
const maxKey = 200

// maxOrderingBody is the most bytes of a body, inflated if need be, in which an ordering key is looked for.
const maxOrderingBody = 1 << 20

// Dedupe says where the provider's event key stands. Exactly one of Preset, Header and JSON is set.
type Dedupe struct {
	Preset string
	Header string
	// JSON is a dot path to a string or an integer in the body.
	JSON string
	// TTL is how long a key is remembered.
	TTL time.Duration
}

// presets maps a preset to its header, or to a JSON path after a "$".
var presets = map[string]string{
	"github": "x-github-delivery", "standard_webhooks": "webhook-id", "svix": "svix-id",
	"shopify": "x-shopify-webhook-id", "stripe": "$id",
}

var presetNames = []string{"github", "standard_webhooks", "svix", "shopify", "stripe"}

// Key reads the provider's event key from a hook's headers or body, of which at most limit bytes are looked at, inflated
// if need be. It is empty where there is none to be read, and never longer than 200 bytes.
func (d *Dedupe) Key(h *hook.Hook, limit int) string {
	header, path := d.Header, d.JSON
	if p := presets[d.Preset]; p != "" {
		if header = p; p[0] == '$' {
			header, path = "", p[1:]
		}
	}
	return shorten(readKey(h, header, path, limit))
}

// Lane reads the key of a hook's lane, as its bytes are, of at most 1 MiB of the body, inflated if need be. It is empty
// where there is none to be read, and never longer than 200 bytes: a longer one is its hash.
func (k OrderingKey) Lane(h *hook.Hook) string {
	lane := readKey(h, k.Header, k.JSON, maxOrderingBody)
	if len(lane) > maxKey {
		return hashed(lane)
	}
	return lane
}

func readKey(h *hook.Hook, header, path string, limit int) string {
	switch {
	case header != "":
		value, _ := h.Header(header)
		return value
	case path != "":
		return jsonKey(h, path, limit)
	default:
		return ""
	}
}

func shorten(key string) string {
	if len(key) <= maxKey && ValidHeaderValue(key) && strings.Trim(key, " \t") == key {
		return key
	}
	return hashed(key)
}

func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func jsonKey(h *hook.Hook, path string, limit int) string {
	body := plainBody(h, limit)
	if !validJSON(body) {
		return ""
	}
	switch r := gjson.GetBytes(body, path); {
	case r.Type == gjson.String:
		return r.Str
	case r.Type == gjson.Number && integer(r.Raw):
		return r.Raw
	default:
		return ""
	}
}

// maxNesting is how many brackets a body may hold to be checked by gjson, whose recursion costs some 100 bytes of stack
// for each that is open. It is the nesting that encoding/json stops at.
const maxNesting = 10_000

// validJSON says whether a body is JSON that nests no deeper than maxNesting. Beyond that many brackets the slower
// checker decides, which does not recurse.
func validJSON(body []byte) bool {
	if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > maxNesting {
		return json.Valid(body)
	}
	return gjson.ValidBytes(body)
}

func integer(s string) bool {
	return strings.Trim(strings.TrimPrefix(s, "-"), "0123456789") == ""
}

// Inflates says whether reading the keys of a hook takes an inflated body, which is held meanwhile.
func (s *Source) Inflates(h *hook.Hook) bool {
	return gzipped(h) && (s.Dedupe != nil && s.Dedupe.readsBody() || slices.ContainsFunc(s.Sinks, Sink.readsBody))
}

func (d *Dedupe) readsBody() bool { return d.JSON != "" || strings.HasPrefix(presets[d.Preset], "$") }

func (s Sink) readsBody() bool { return s.Ordered && s.OrderingKey.JSON != "" }

func gzipped(h *hook.Hook) bool {
	encoding, _ := h.Header("content-encoding")
	return strings.EqualFold(encoding, "gzip")
}

// plainBody is the body, inflated where its Content-Encoding is gzip; nil where that is more than limit bytes.
func plainBody(h *hook.Hook, limit int) []byte {
	body := h.Body
	if gzipped(h) {
		body = inflate(h.Body, limit)
	}
	if len(body) > limit {
		return nil
	}
	return body
}

func inflate(body []byte, limit int) []byte {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil
	}
	return plain
}

// validPath says whether a text is a dot path: non-empty segments without the signs that a path language would give a
// meaning.
func validPath(path string) bool {
	if len(path) == 0 || len(path) > 256 {
		return false
	}
	for segment := range strings.SplitSeq(path, ".") {
		if segment == "" || strings.ContainsAny(segment, "*?|#@\\!{}[]()<>=%\"'`~^&,; \t\r\n") {
			return false
		}
	}
	return true
}
