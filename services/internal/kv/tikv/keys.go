package tikv

import (
	"slices"

	"ankusa.dev/services/internal/kv"
)

// space is the part of the cluster's keys that begins with a prefix.
type space string

func (s space) key(k []byte) []byte { return append([]byte(s), k...) }

func (s space) keys(ks [][]byte) [][]byte {
	out := make([][]byte, len(ks))
	for i, k := range ks {
		out[i] = s.key(k)
	}
	return out
}

// strip gives back what key was made from, as a copy.
func (s space) strip(k []byte) []byte { return slices.Clone(k[len(s):]) }

// bounds are the cluster's keys for a range. The end is never empty.
func (s space) bounds(r kv.Range) (from, to []byte) {
	if len(r.To) > 0 {
		return s.key(r.From), s.key(r.To)
	}
	return s.key(r.From), s.end()
}

// end is the first key above the space. Its first byte is below 0xff, so that one exists.
func (s space) end() []byte {
	e := []byte(s)
	for e[len(e)-1] == 0xff {
		e = e[:len(e)-1]
	}
	e[len(e)-1]++
	return e
}
