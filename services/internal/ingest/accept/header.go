package accept

import (
	"strings"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

// CheckHeaders returns the name of the first header that cannot be carried as it is, or an empty text.
func CheckHeaders(headers []hook.Header) string {
	for _, h := range headers {
		if !source.ValidHeaderName(h.Name) || !source.ValidHeaderValue(h.Value) {
			return h.Name
		}
	}
	return ""
}

// stored are the headers without those that no sink may ever get: credentials of the hop, framing, and names that are
// this system's own. The content type stays, since it is the hook's. The list goes into the spare capacity of headers,
// which itself stays as it is.
func stored(headers []hook.Header) []hook.Header {
	kept := headers[len(headers):]
	for _, h := range headers {
		if mayLeave(h.Name) {
			kept = append(kept, h)
		}
	}
	return kept
}

func mayLeave(name string) bool {
	var room [32]byte
	if len(name) > len(room) { // longer than any name that stays, but for those of the prefix
		return !strings.EqualFold(name[:len(source.OwnPrefix)], source.OwnPrefix)
	}
	lower := room[:len(name)]
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return source.Stored(string(lower))
}
