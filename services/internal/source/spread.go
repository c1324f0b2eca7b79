package source

import (
	"hash/fnv"

	"ankusa.dev/services/internal/hook"
)

// Part numbers the partition among Spread ones that a hook belongs to, from 0: by its lane where sinks are ordered, by
// its dedupe key where it has one, else by its id.
func (s *Source) Part(h *hook.Hook) uint32 {
	if s.Spread <= 1 {
		return 0
	}
	sum := fnv.New32a()
	switch lane, ordered := s.laneKey(); {
	case ordered:
		_, _ = sum.Write([]byte(lane.Lane(h)))
	case h.DedupeKey != "":
		_, _ = sum.Write([]byte(h.DedupeKey))
	default:
		_, _ = sum.Write(h.ID[:])
	}
	return sum.Sum32() % s.Spread
}
