package store

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Values are protocol-buffer messages, written field by field: unknown fields are skipped on reading, absent ones are
// zero, so that a value can grow without a migration. Every value opens with the format field.

// ErrCorrupt: a value in the store cannot be read.
var ErrCorrupt = errors.New("corrupt value")

const (
	formatField   = 1
	currentFormat = 1
)

type encoder []byte

func newValue(size int) encoder {
	return encoder(make([]byte, 0, size+4)).uint(formatField, currentFormat)
}

// uint writes a number; zero is left out.
func (e encoder) uint(num protowire.Number, v uint64) encoder {
	if v == 0 {
		return e
	}
	return protowire.AppendVarint(protowire.AppendTag(e, num, protowire.VarintType), v)
}

// fixed writes a number of eight bytes; zero is left out.
func (e encoder) fixed(num protowire.Number, v uint64) encoder {
	if v == 0 {
		return e
	}
	return protowire.AppendFixed64(protowire.AppendTag(e, num, protowire.Fixed64Type), v)
}

// text writes a text; the empty one is left out.
func (e encoder) text(num protowire.Number, s string) encoder {
	if s == "" {
		return e
	}
	return protowire.AppendString(protowire.AppendTag(e, num, protowire.BytesType), s)
}

// bytes writes bytes; none are left out.
func (e encoder) bytes(num protowire.Number, b []byte) encoder {
	if len(b) == 0 {
		return e
	}
	return protowire.AppendBytes(protowire.AppendTag(e, num, protowire.BytesType), b)
}

// message writes a nested message, the empty one, too.
func (e encoder) message(num protowire.Number, m encoder) encoder {
	return protowire.AppendBytes(protowire.AppendTag(e, num, protowire.BytesType), m)
}

// field is one field as read: v for numbers, b for bytes. b points into the value.
type field struct {
	num protowire.Number
	v   uint64
	b   []byte
}

func (f field) flag() bool { return f.v != 0 }

// decode reads a value and its format.
func decode(what string, b []byte, visit func(field) error) error {
	format := uint64(0)
	err := fields(b, func(f field) error {
		if f.num == formatField {
			format = f.v
			return nil
		}
		return visit(f)
	})
	if err == nil && format != currentFormat {
		err = fmt.Errorf("%w: format %d", ErrCorrupt, format)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

// fields reads a nested message.
func fields(b []byte, visit func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ErrCorrupt
		}
		b = b[n:]
		f := field{num: num}
		switch typ {
		case protowire.VarintType:
			f.v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return ErrCorrupt
		}
		b = b[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}
