package config

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Sources are the sources of a file.
type Sources []json.RawMessage

func (s Sources) redacted() any { return len(s) }

func (d *decoder) sources(n *node, v reflect.Value, path string) {
	_ = v
	_ = path
	_ = n
}

// plain is a tree as encoding/json takes it.
func plain(n *node) any {
	switch n.kind {
	case kindMap:
		out := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			out[e.key] = plain(e.value)
		}
		return out
	case kindList:
		out := make([]any, len(n.items))
		for i, item := range n.items {
			out[i] = plain(item)
		}
		return out
	case kindBool:
		return n.text == "true"
	case kindWhole:
		return json.Number(n.text)
	case kindFloat:
		if f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64); err == nil {
			return f
		}
		return n.text
	case kindNull:
		return nil
	default:
		return n.text
	}
}
