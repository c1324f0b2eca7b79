package config

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// units of the durations, by the end of their key.
var units = []struct {
	suffix string
	unit   time.Duration
}{
	{"_ms", time.Millisecond},
	{"_hours", time.Hour},
}

// Unit in which the file states a duration, by the end of its key. A key without one is a mistake of this package.
func Unit(key string) time.Duration {
	for _, u := range units {
		if strings.HasSuffix(key, u.suffix) {
			return u.unit
		}
	}
	panic("config: the key of a duration has no unit: " + key)
}

// decoder writes a tree into a configuration that holds the defaults.
type decoder struct{ faults }

func (d *decoder) mismatch(n *node, path, constraint string) {
	got := n.written
	switch n.kind {
	case kindMap:
		got = "a mapping"
	case kindList:
		got = "a list"
	case kindText:
		got = quote(n.written)
	}
	if path == "" {
		path, got = "the file", "something else"
	}
	d.add(path, n.line, "must be %s, got %s", constraint, got)
}

// maxShown bounds how much of a wrong value a fault repeats.
const maxShown = 64

// quote shows a text of the file.
func quote(text string) string {
	if len(text) > maxShown {
		return strconv.Quote(text[:maxShown]) + "..."
	}
	return strconv.Quote(text)
}

func (d *decoder) value(n *node, v reflect.Value, path string) {
	if v.Type() == reflect.TypeFor[Sources]() {
		return // they are read when the rest, which they depend on, is known
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.unmarshaler(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.group(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	case reflect.Pointer:
		d.nullable(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) group(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		return
	}
	if n.kind != kindMap {
		d.mismatch(n, path, "a mapping")
		return
	}
	fields := map[string]reflect.Value{}
	for f, value := range v.Fields() {
		fields[f.Tag.Get("key")] = value
	}
	for _, e := range n.entries {
		at := join(path, e.key)
		field, known := fields[e.key]
		if !known {
			d.add(at, e.line, "%s", unknown(at))
			continue
		}
		d.value(e.value, field, at)
	}
}

func (d *decoder) mapping(n *node, v reflect.Value, path string) {
	if n.kind != kindMap && n.kind != kindNull {
		d.mismatch(n, path, "a mapping")
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range n.entries {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(e.value, item, join(path, e.key))
		out.SetMapIndex(reflect.ValueOf(e.key), item)
	}
	v.Set(out)
}

func (d *decoder) sequence(n *node, v reflect.Value, path string) {
	if n.kind != kindList {
		d.mismatch(n, path, "a list")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.value(item, out.Index(i), join(path, strconv.Itoa(i)))
	}
	v.Set(out)
}

func (d *decoder) nullable(n *node, v reflect.Value, path string) {
	if n.kind == kindNull {
		v.SetZero()
		return
	}
	item := reflect.New(v.Type().Elem())
	d.value(n, item.Elem(), path)
	v.Set(item)
}

func (d *decoder) unmarshaler(n *node, u encoding.TextUnmarshaler, path string) {
	if n.kind != kindText || u.UnmarshalText([]byte(n.text)) != nil {
		d.mismatch(n, path, "a CIDR block")
	}
}

func (d *decoder) scalar(n *node, v reflect.Value, path string) {
	switch v.Interface().(type) {
	case time.Duration:
		unit := Unit(path)
		if whole, ok := d.whole(n, path, math.MaxInt64/int64(unit)); ok {
			v.SetInt(whole * int64(unit))
		}
	case int, int64:
		if whole, ok := d.whole(n, path, math.MaxInt64); ok {
			v.SetInt(whole)
		}
	case bool:
		d.boolean(n, v, path)
	case string:
		if n.kind != kindText {
			d.mismatch(n, path, "text")
			return
		}
		v.SetString(n.text)
	default:
		panic(fmt.Sprintf("config: %s has a type that nothing decodes: %s", path, v.Type()))
	}
}

func (d *decoder) whole(n *node, path string, most int64) (int64, bool) {
	if n.kind != kindWhole && !n.variable {
		d.mismatch(n, path, "a whole number")
		return 0, false
	}
	whole, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil {
		d.mismatch(n, path, "a whole number")
		return 0, false
	}
	if n.variable && strconv.FormatInt(whole, 10) != n.text {
		d.mismatch(n, path, wholeNumber)
		return 0, false
	}
	if whole > most || whole < -most {
		d.mismatch(n, path, fmt.Sprintf("at most %d", most))
		return 0, false
	}
	return whole, true
}

func (d *decoder) boolean(n *node, v reflect.Value, path string) {
	switch {
	case n.kind != kindBool && !n.variable, n.text != "true" && n.text != "false":
		d.mismatch(n, path, "true or false")
	default:
		v.SetBool(n.text == "true")
	}
}
