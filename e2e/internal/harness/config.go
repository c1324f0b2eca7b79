package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Settings are keys of the product's file in dotted form, with values as JSON takes them.
type Settings map[string]any

// with returns the settings of s, overlaid by those of o.
func (s Settings) with(o Settings) Settings {
	all := Settings{}
	for _, layer := range []Settings{s, o} {
		for key, value := range layer {
			all[key] = value
		}
	}
	return all
}

// write makes the file. JSON is YAML.
func (s Settings) write(path string) error {
	tree := map[string]any{}
	for key, value := range s {
		at, parts := tree, strings.Split(key, ".")
		for _, part := range parts[:len(parts)-1] {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[part] = next
			}
			at = next
		}
		at[parts[len(parts)-1]] = value
	}
	text, err := json.MarshalIndent(tree, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o600)
}

// Egress lets sinks reach plain HTTP receivers on this machine.
func Egress() Settings {
	return Settings{"egress.allow_http": true, "egress.allow_cidrs": []string{"127.0.0.0/8"}}
}
