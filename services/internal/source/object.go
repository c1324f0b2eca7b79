package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxMillis bounds numbers of milliseconds, so that they fit a time.Duration: 34 years.
const maxMillis = 1 << 40

// object reads the keys of one mapping, each once, and remembers which; close makes the others faults. A value of null
// counts as absent.
type object struct {
	faults *Faults
	key    string
	fields map[string]any
	read   map[string]bool
	any    bool
}

func objectOf(f *Faults, key string, tree any) *object {
	fields, ok := tree.(map[string]any)
	if !ok && tree != nil {
		f.must(key, "a mapping", kindOf(tree))
	}
	return &object{faults: f, key: key, fields: fields, read: map[string]bool{}}
}

// ignoreRest lets every other key pass: the type that they would belong to is refused.
func (o *object) ignoreRest() { o.any = true }

func (o *object) close() {
	if o.any {
		return
	}
	for _, k := range sortedKeys(o.fields) {
		if !o.read[k] {
			o.faults.must(at(o.key, k), "absent", "a key that is not known here")
		}
	}
}

func (o *object) get(name string) any {
	o.read[name] = true
	return o.fields[name]
}

func (o *object) has(name string) bool { return o.get(name) != nil }

// notYet refuses keys of parts that are not built, by name.
func (o *object) notYet(names ...string) {
	for _, n := range names {
		if o.has(n) {
			o.faults.notYet(at(o.key, n), n)
		}
	}
}

func (o *object) object(name string) *object { return objectOf(o.faults, at(o.key, name), o.get(name)) }

// optional is nil where the key is absent.
func (o *object) optional(name string) *object {
	if !o.has(name) {
		return nil
	}
	return o.object(name)
}

func (o *object) list(name string) []any {
	v := o.get(name)
	list, ok := v.([]any)
	if !ok && v != nil {
		o.faults.must(at(o.key, name), "a list", kindOf(v))
	}
	return list
}

func (o *object) text(name, absent string) string {
	v := o.get(name)
	if v == nil {
		return absent
	}
	s, ok := textOf(v)
	if !ok {
		o.faults.must(at(o.key, name), "a text", kindOf(v))
	}
	return s
}

// texts is nil where the key is absent.
func (o *object) texts(name string) []string {
	if !o.has(name) {
		return nil
	}
	list := []string{}
	for i, v := range o.list(name) {
		s, ok := textOf(v)
		if !ok {
			o.faults.must(at(o.key, fmt.Sprintf("%s.%d", name, i)), "a text", kindOf(v))
		}
		list = append(list, s)
	}
	return list
}

// secrets reads a text or a list of texts.
func (o *object) secrets(name string) []Secret {
	if s, ok := textOf(o.get(name)); ok {
		return []Secret{NewSecret(s)}
	}
	return secrets(o.texts(name))
}

func (o *object) headers(name string) map[string]Secret {
	m := o.optional(name)
	if m == nil {
		return nil
	}
	headers := map[string]Secret{}
	for _, k := range sortedKeys(m.fields) {
		lower := strings.ToLower(k)
		if _, twice := headers[lower]; twice {
			o.faults.must(at(m.key, k), "given once", "the same name in other letters")
		}
		headers[lower] = NewSecret(m.text(k, ""))
	}
	return headers
}

func (o *object) boolean(name string) bool {
	switch v := o.get(name).(type) {
	case nil:
		return false
	case bool:
		return v
	case Text:
		if v == "true" || v == "false" {
			return v == "true"
		}
		o.faults.must(at(o.key, name), "true or false", v)
	default:
		o.faults.must(at(o.key, name), "true or false", kindOf(v))
	}
	return false
}

// whole reads a number from 0 to 2^32-1.
func (o *object) whole(name string, absent int64) int64 {
	return o.number(name, absent, math.MaxUint32)
}

func (o *object) seconds(name string, absent time.Duration) time.Duration {
	return time.Duration(o.whole(name, int64(absent/time.Second))) * time.Second
}

func (o *object) millis(name string, absent time.Duration) time.Duration {
	return time.Duration(o.number(name, absent.Milliseconds(), maxMillis)) * time.Millisecond
}

func (o *object) number(name string, absent, limit int64) int64 {
	v := o.get(name)
	if v == nil {
		return absent
	}
	n, ok := numberOf(v)
	if !ok || n < 0 || n > limit {
		got := any(kindOf(v))
		if ok {
			got = v
		}
		o.faults.must(at(o.key, name), fmt.Sprintf("a whole number from 0 to %d", limit), got)
		return absent
	}
	return n
}

func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Text:
		return string(v), true
	default:
		return "", false
	}
}

func numberOf(v any) (int64, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	case json.Number:
		return decimal(v.String())
	case Text:
		return decimal(string(v))
	default:
		return 0, false
	}
}

func decimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
