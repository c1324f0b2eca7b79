package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// JSON is the configuration as it is at work, in the shape of the file, with every secret redacted.
func (c Config) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(shape(reflect.ValueOf(c), ""), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("print config: %w", err)
	}
	return out, nil
}

// shape gives a value the form that it has in the file.
func shape(v reflect.Value, key string) any {
	switch value := v.Interface().(type) {
	case Sources:
		return value.redacted()
	case time.Duration:
		return int64(value / Unit(key))
	case encoding.TextMarshaler:
		return value
	}
	switch v.Kind() {
	case reflect.Struct:
		out := map[string]any{}
		for f, value := range v.Fields() {
			out[f.Tag.Get("key")] = shape(value, f.Tag.Get("key"))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for name, value := range v.Seq2() {
			out[name.String()] = shape(value, name.String())
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = shape(v.Index(i), key)
		}
		return out
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return shape(v.Elem(), key)
	default:
		return v.Interface()
	}
}
