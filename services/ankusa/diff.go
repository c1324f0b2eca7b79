package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// diff says, a line per key, what makes wanted of stored. Both are redacted.
func diff(stored, wanted map[string]any) []string {
	before, after := flat(stored), flat(wanted)
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, had := before[key]
		now, has := after[key]
		switch {
		case !had:
			lines = append(lines, fmt.Sprintf("+ %s: %s", key, now))
		case !has:
			lines = append(lines, fmt.Sprintf("- %s: %s", key, old))
		case old != now:
			lines = append(lines, fmt.Sprintf("~ %s: %s -> %s", key, old, now))
		}
	}
	return lines
}

// flat turns a tree into texts by dotted key.
func flat(tree map[string]any) map[string]string {
	text, err := json.Marshal(tree)
	if err != nil {
		panic(err) // a source's settings always encode
	}
	out := map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var plain map[string]any
	if err := decoder.Decode(&plain); err != nil {
		panic(err) // and what was encoded decodes
	}
	flatten(out, "", plain)
	return out
}

func flatten(out map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			flatten(out, strings.TrimPrefix(path+"."+key, "."), item)
		}
	case []any:
		for i, item := range value {
			flatten(out, path+"."+strconv.Itoa(i), item)
		}
	default:
		out[path] = fmt.Sprint(value)
	}
}
