package store

import "ankusa.dev/services/internal/hook"

// guard is what ingest reads of a source in its batch.
type guard struct {
	incarnation uint64
	// closed: no transaction that starts before takes a hook. A deletion that dies leaves a source closed no longer.
	closed   hook.Timestamp
	revision hook.Timestamp
}

// never stands for a source that does not exist.
const never = ^hook.Timestamp(0)

func (g guard) encode() []byte {
	return newValue(32).uint(2, g.incarnation).fixed(5, uint64(g.closed)).fixed(4, uint64(g.revision))
}

func decodeGuard(b []byte) (g guard, err error) {
	if b == nil {
		return guard{closed: never}, nil
	}
	err = decode("source guard", b, func(f field) error {
		switch f.num {
		case 2:
			g.incarnation = f.v
		case 5:
			g.closed = hook.Timestamp(f.v)
		case 4:
			g.revision = hook.Timestamp(f.v)
		}
		return nil
	})
	return g, err
}

type dedupeValue struct {
	id      hook.ID
	expires hook.Timestamp
}

func encodeDedupe(d dedupeValue) []byte {
	return newValue(32).bytes(2, d.id[:]).fixed(3, uint64(d.expires))
}

func decodeDedupe(b []byte) (d dedupeValue, err error) {
	if b == nil {
		return d, nil
	}
	err = decode("dedupe key", b, func(f field) error {
		switch f.num {
		case 2:
			copy(d.id[:], f.b)
		case 3:
			d.expires = hook.Timestamp(f.v)
		}
		return nil
	})
	return d, err
}

// An obligation says which deliveries of a hook are still owed: one bit for each sink. It exists only for hooks with
// more than one, and whoever adds or removes one reads and writes it.
func allSinks(bindings []Binding) (bits uint64) {
	for _, b := range bindings {
		bits |= 1 << b.Key.Index
	}
	return bits
}

func encodeObligation(bits uint64) []byte { return newValue(16).fixed(2, bits) }

func decodeObligation(b []byte) (bits uint64, err error) {
	if b == nil {
		return 0, nil
	}
	err = decode("obligation", b, func(f field) error {
		if f.num == 2 {
			bits = f.v
		}
		return nil
	})
	return bits, err
}
