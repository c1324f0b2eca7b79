package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A Fault says what is wrong with a JSON body, in words for the person who sent it. It never repeats a value, since
// that may be a secret.
type Fault struct {
	// Path is the dotted key, for example sinks[0].timeout_ms; empty for the body as a whole.
	Path string
	// Problem completes a sentence that begins with the path.
	Problem string
}

// Error returns the sentence.
func (f *Fault) Error() string {
	if f.Path == "" {
		return "the body " + f.Problem
	}
	return f.Path + " " + f.Problem
}

// Unmarshal fills an empty message from one JSON object. Unknown and repeated keys, values of another type, numbers out
// of range and text that is not UTF-8 are refused; null means absent. Every error is a *Fault, and m is then
// undefined.
func Unmarshal(data []byte, m proto.Message) error {
	if !utf8.Valid(data) {
		return &Fault{Problem: "must be UTF-8"}
	}
	d := decoder{tokens: json.NewDecoder(bytes.NewReader(data))}
	d.tokens.UseNumber()
	t, err := d.next("")
	if err != nil {
		return err
	}
	if err := d.message("", t, m.ProtoReflect()); err != nil {
		return err
	}
	if _, err := d.tokens.Token(); !errors.Is(err, io.EOF) {
		return &Fault{Problem: "must be one JSON object"}
	}
	return nil
}

type decoder struct{ tokens *json.Decoder }

func (d *decoder) next(path string) (json.Token, error) {
	t, err := d.tokens.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return t, nil
	case errors.As(err, &syntax):
		return nil, &Fault{Path: path, Problem: fmt.Sprintf("is not JSON at byte %d", syntax.Offset)}
	case path == "" && d.tokens.InputOffset() == 0:
		return nil, &Fault{Problem: "must be a JSON object"}
	default:
		return nil, &Fault{Path: path, Problem: "ends too early"}
	}
}

func (d *decoder) message(path string, t json.Token, m protoreflect.Message) error {
	if f := unwrapped(m.Descriptor()); f != nil {
		return d.list(path, t, f, m)
	}
	fields := m.Descriptor().Fields()
	return d.object(path, t, func(key, at string) error {
		f := fields.ByName(protoreflect.Name(key))
		if f == nil {
			return &Fault{Path: at, Problem: "is not a known key"}
		}
		return d.field(at, f, m)
	})
}

// object reads a JSON object whose opening brace is t and hands each key, with its path, to take, which reads the value.
func (d *decoder) object(path string, t json.Token, take func(key, at string) error) error {
	if t != json.Delim('{') {
		return &Fault{Path: path, Problem: "must be an object"}
	}
	seen := map[string]bool{}
	for {
		t, err := d.next(path)
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return nil // the closing brace: the tokenizer lets nothing else stand here
		}
		at := join(path, key)
		if seen[key] {
			return &Fault{Path: at, Problem: "is given twice"}
		}
		seen[key] = true
		if err := take(key, at); err != nil {
			return err
		}
	}
}

func (d *decoder) field(path string, f protoreflect.FieldDescriptor, m protoreflect.Message) error {
	t, err := d.next(path)
	if err != nil || t == nil {
		return err
	}
	switch {
	case f.IsMap():
		values := m.Mutable(f).Map()
		return d.object(path, t, func(key, at string) error {
			v, err := d.nextScalar(at, f.MapValue())
			if err == nil {
				values.Set(protoreflect.ValueOfString(key).MapKey(), v)
			}
			return err
		})
	case f.IsList():
		return d.list(path, t, f, m)
	case f.Kind() == protoreflect.MessageKind:
		return d.message(path, t, m.Mutable(f).Message())
	default:
		v, err := scalar(path, t, f)
		if err == nil {
			m.Set(f, v)
		}
		return err
	}
}

func (d *decoder) list(path string, t json.Token, f protoreflect.FieldDescriptor, m protoreflect.Message) error {
	l := m.Mutable(f).List()
	if s, ok := t.(string); ok && takesOne(f) {
		l.Append(protoreflect.ValueOfString(s))
		return nil
	}
	if t != json.Delim('[') {
		return &Fault{Path: path, Problem: "must be a list"}
	}
	for d.tokens.More() {
		at := fmt.Sprintf("%s[%d]", path, l.Len())
		if err := d.element(at, f, l); err != nil {
			return err
		}
	}
	_, err := d.next(path)
	return err
}

func (d *decoder) element(path string, f protoreflect.FieldDescriptor, l protoreflect.List) error {
	if f.Kind() != protoreflect.MessageKind {
		v, err := d.nextScalar(path, f)
		if err == nil {
			l.Append(v)
		}
		return err
	}
	t, err := d.next(path)
	if err != nil {
		return err
	}
	return d.message(path, t, l.AppendMutable().Message())
}

func (d *decoder) nextScalar(path string, f protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	t, err := d.next(path)
	if err != nil {
		return protoreflect.Value{}, err
	}
	return scalar(path, t, f)
}

func scalar(path string, t json.Token, f protoreflect.FieldDescriptor) (protoreflect.Value, error) {
	switch t := t.(type) {
	case string:
		if f.Kind() == protoreflect.StringKind {
			return protoreflect.ValueOfString(t), nil
		}
	case bool:
		if f.Kind() == protoreflect.BoolKind {
			return protoreflect.ValueOfBool(t), nil
		}
	case json.Number:
		if v, ok := Integer(t.String(), f.Kind()); ok {
			return v, nil
		}
	}
	return protoreflect.Value{}, &Fault{Path: path, Problem: "must be " + Wanted(f.Kind())}
}

// Integer reads a decimal integer of the given kind. It reports false for another kind, another spelling, or a number
// that the kind cannot hold.
func Integer(s string, kind protoreflect.Kind) (protoreflect.Value, bool) {
	var v protoreflect.Value
	var err error
	switch kind {
	case protoreflect.Int32Kind:
		var n int64
		n, err = strconv.ParseInt(s, 10, 32)
		v = protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		var n int64
		n, err = strconv.ParseInt(s, 10, 64)
		v = protoreflect.ValueOfInt64(n)
	case protoreflect.Uint32Kind:
		var n uint64
		n, err = strconv.ParseUint(s, 10, 32)
		v = protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		var n uint64
		n, err = strconv.ParseUint(s, 10, 64)
		v = protoreflect.ValueOfUint64(n)
	default:
		return v, false
	}
	return v, err == nil
}

// Wanted names what a value of the given kind looks like in JSON.
func Wanted(kind protoreflect.Kind) string {
	switch kind {
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.Int32Kind:
		return "a whole number from -2147483648 to 2147483647"
	case protoreflect.Int64Kind:
		return "a whole number of 64 bits"
	case protoreflect.Uint32Kind:
		return "a whole number from 0 to 4294967295"
	case protoreflect.Uint64Kind:
		return "a whole number of 64 bits, not negative"
	default:
		return "another value"
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
