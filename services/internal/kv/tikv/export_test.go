package tikv

import "ankusa.dev/services/internal/kv"

// PrefixOf is the key prefix of a store that Open returned.
func PrefixOf(s kv.Store) string {
	if c, ok := s.(*collecting); ok {
		return string(c.space)
	}
	return string(s.(*Store).space)
}
