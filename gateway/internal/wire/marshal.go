package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal returns the JSON of a message on one line, its fields in the order of the proto. It fails on a field whose
// kind the API does not use: bytes, enums, floats.
func Marshal(m proto.Message) ([]byte, error) {
	var e encoder
	if err := e.message(m.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return e.buf.Bytes(), nil
}

type encoder struct{ buf bytes.Buffer }

func (e *encoder) message(m protoreflect.Message) error {
	if f := unwrapped(m.Descriptor()); f != nil {
		return e.field(f, m.Get(f))
	}
	e.buf.WriteByte('{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) && sparse[m.Descriptor().FullName()] {
			continue
		}
		e.key(string(f.Name()), &first)
		if !m.Has(f) && f.HasPresence() {
			e.buf.WriteString("null")
			continue
		}
		if err := e.field(f, m.Get(f)); err != nil {
			return err
		}
	}
	e.buf.WriteByte('}')
	return nil
}

func (e *encoder) field(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case f.IsMap():
		return e.object(f.MapValue(), v.Map())
	case f.IsList():
		return e.list(f, v.List())
	default:
		return e.value(f, v)
	}
}

func (e *encoder) list(f protoreflect.FieldDescriptor, l protoreflect.List) error {
	e.buf.WriteByte('[')
	for i := range l.Len() {
		if i > 0 {
			e.buf.WriteByte(',')
		}
		if err := e.value(f, l.Get(i)); err != nil {
			return err
		}
	}
	e.buf.WriteByte(']')
	return nil
}

func (e *encoder) object(values protoreflect.FieldDescriptor, m protoreflect.Map) error {
	entries := make(map[string]protoreflect.Value, m.Len())
	for k, v := range m.Range {
		entries[k.String()] = v
	}
	e.buf.WriteByte('{')
	first := true
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		e.key(k, &first)
		if err := e.value(values, entries[k]); err != nil {
			return err
		}
	}
	e.buf.WriteByte('}')
	return nil
}

func (e *encoder) value(f protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch f.Kind() {
	case protoreflect.StringKind:
		e.string(v.String())
	case protoreflect.BoolKind:
		e.buf.WriteString(strconv.FormatBool(v.Bool()))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		e.buf.WriteString(strconv.FormatInt(v.Int(), 10))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		e.buf.WriteString(strconv.FormatUint(v.Uint(), 10))
	case protoreflect.MessageKind:
		return e.message(v.Message())
	default:
		return fmt.Errorf("%s: no JSON form for a %s", f.FullName(), f.Kind())
	}
	return nil
}

func (e *encoder) key(name string, first *bool) {
	if !*first {
		e.buf.WriteByte(',')
	}
	*first = false
	e.string(name)
	e.buf.WriteByte(':')
}

// string leaves <, > and & as they are: the answers are no HTML, and people read the URLs in them.
func (e *encoder) string(s string) {
	enc := json.NewEncoder(&e.buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a Buffer takes all
	e.buf.Truncate(e.buf.Len() - 1)
}
