package config

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"ankusa.dev/services/internal/source"
)

// DefaultPath is where a process looks for its file.
const DefaultPath = "/etc/ankusa/ankusa.yml"

// ExitCode of a process whose configuration is bad.
const ExitCode = 78

// maxFile bounds the file's size in bytes.
const maxFile = 16 << 20

// Path of the file: the flag's, or ANKUSA_CONFIG's, or DefaultPath.
func Path(flag string, env Environment) string {
	if flag != "" {
		return flag
	}
	if path, _ := env.lookup("ANKUSA_CONFIG"); path != "" {
		return path
	}
	return DefaultPath
}

// Load reads the file at path and lays the environment's overrides over it. The result is valid for the role: what a
// process of it needs is there. Any failure is an *Error that holds every fault.
func Load(path string, role Role, env Environment) (Config, error) {
	text, err := read(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, text, role, env)
}

// LoadAgain is Load for a process that runs. It refuses a file that says nothing: such a file is more likely being written
// than meant.
func LoadAgain(path string, role Role, env Environment) (Config, error) {
	text, err := read(path)
	if err != nil {
		return Config{}, err
	}
	if root, _ := parse(text); root != nil && root.kind == kindMap && len(root.entries) == 0 {
		return Config{}, &Error{Path: path, Faults: []Fault{{Problem: "the file must have content, got nothing"}}}
	}
	return Parse(path, text, role, env)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, unreadable(path, err)
	}
	if len(text) > maxFile {
		return nil, &Error{Path: path, Faults: []Fault{{Problem: fmt.Sprintf("the file must be at most %d bytes, got more", maxFile)}}}
	}
	return text, nil
}

func unreadable(path string, err error) error {
	return &Error{Path: path, Faults: []Fault{{Problem: "the file must be readable: " + err.Error()}}}
}

// Parse is Load for the text of a file. The path is for the faults only.
func Parse(path string, text []byte, role Role, env Environment) (Config, error) {
	root, found := parse(text)
	if root == nil {
		return Config{}, &Error{Path: path, Faults: found}
	}
	d := decoder{faults{found}}
	interpolate(root, "", env, &d.faults)
	c := Default()
	d.group(root, reflect.ValueOf(&c).Elem(), "")
	overridden := d.override(&c, env)
	refuseVariables(env, &d.faults)
	if sources := root.get("sources"); sources != nil {
		d.sources(sources.value, &c)
	}
	d.judge(c, role, overridden)
	d.locate(root)
	if len(d.list) > 0 {
		return Config{}, d.err(path)
	}
	return c, nil
}

// LoadSources reads the sources of a file and nothing else of it: what the other sections say, and so the rules that
// depend on them, is not judged. Any failure is an *Error that holds every fault.
func LoadSources(path string, env Environment) (Sources, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	root, found := parse(text)
	d := decoder{faults{found}}
	c := Default()
	if root != nil {
		d.sourcesAlone(root, env, &c)
		d.locate(root)
	}
	if len(d.list) > 0 {
		return nil, d.err(path)
	}
	return c.Sources, nil
}

func (d *decoder) sourcesAlone(root *node, env Environment, c *Config) {
	if root.kind != kindMap {
		d.mismatch(root, "", "a mapping")
		return
	}
	known := reflect.ValueOf(c).Elem()
	for _, e := range root.entries {
		if !slices.Contains(fieldKeys(known), e.key) {
			d.add(e.key, e.line, "%s", unknown(e.key))
		}
	}
	entry := root.get("sources")
	if entry == nil {
		d.add("sources", 0, "must be given, got nothing")
		return
	}
	interpolate(entry.value, "sources", env, &d.faults)
	list, err := source.DecodeAll("sources", plain(entry.value), source.Rules{})
	d.addSourceFaults(err)
	c.Sources = list
}

func fieldKeys(v reflect.Value) []string {
	var keys []string
	for f := range v.Fields() {
		keys = append(keys, f.Tag.Get("key"))
	}
	return keys
}

// err is an *Error of all faults in the order of the file.
func (d *decoder) err(path string) error {
	slices.SortStableFunc(d.list, func(a, b Fault) int { return a.Line - b.Line })
	return &Error{Path: path, Faults: d.list}
}

// override sets the fields that a variable names, and returns the keys that it set with the variable's name.
func (d *decoder) override(c *Config, env Environment) map[string]string {
	set := map[string]string{}
	for _, f := range fields(reflect.ValueOf(c).Elem(), "") {
		for _, name := range f.variables {
			value, _ := env.lookup(name)
			if value == "" {
				continue
			}
			n := &node{kind: kindText, line: elsewhere, text: value, written: value, variable: true}
			before := len(d.list)
			d.value(n, f.value, f.path)
			for i := before; i < len(d.list); i++ {
				d.list[i].Problem += " from " + name
			}
			set[f.path] = name
			break
		}
	}
	return set
}

// judge adds what validation finds, but nothing about a key that is already at fault.
func (d *decoder) judge(c Config, role Role, overridden map[string]string) {
	blamed := map[string]bool{}
	for _, f := range d.list {
		blamed[f.Key] = true
	}
	for _, f := range append(c.faults(), c.roleFaults(role)...) {
		if blamed[f.Key] {
			continue
		}
		if name, ok := overridden[f.Key]; ok {
			f.Problem += " from " + name
			f.Line = elsewhere
		}
		d.list = append(d.list, f)
	}
}

// elsewhere is the line of a value that does not come from the file, until the faults are located.
const elsewhere = -1

// locate gives every fault that has no line the one of its key, and has those of a value that a reference gave show it
// as it is written.
func (d *decoder) locate(root *node) {
	for i, f := range d.list {
		switch f.Line {
		case elsewhere:
			d.list[i].Line = 0
		case 0:
			line, n := find(root, f.Key)
			d.list[i].Line = line
			if n != nil && n.variable {
				constraint, _, _ := strings.Cut(f.Problem, ", got ")
				d.list[i].Problem = constraint + ", got " + quote(n.written)
			}
		}
	}
}

// find returns a key's line and value; without a value, the line of the closest group around it that the file has, 0
// for none.
func find(n *node, path string) (line int, value *node) {
	for path != "" {
		var next *node
		for _, e := range n.entries {
			if rest, ok := strings.CutPrefix(path, e.key); ok && (rest == "" || rest[0] == '.') {
				next, line, path = e.value, e.line, strings.TrimPrefix(rest, ".")
				break
			}
		}
		if next == nil {
			next, line, path = lineOfItem(n, path, line)
		}
		if next == nil {
			return line, nil
		}
		n = next
	}
	return line, n
}

func lineOfItem(n *node, path string, line int) (*node, int, string) {
	head, rest, _ := strings.Cut(path, ".")
	i, err := strconv.Atoi(head)
	if err != nil || i < 0 || i >= len(n.items) {
		return nil, line, path
	}
	return n.items[i], n.items[i].line, rest
}

// field is one leaf of the configuration.
type field struct {
	path      string
	value     reflect.Value
	variables []string
	reload    bool // a running process can take a new value over
}

// fields lists the leaves of a group in the order of their declaration.
func fields(v reflect.Value, path string) []field {
	var out []field
	for f, value := range v.Fields() {
		at := join(path, f.Tag.Get("key"))
		if value.Kind() == reflect.Struct {
			out = append(out, fields(value, at)...)
			continue
		}
		leaf := field{path: at, value: value, reload: f.Tag.Get("reload") == "true"}
		if names := f.Tag.Get("env"); names != "" {
			leaf.variables = strings.Split(names, ",")
		}
		out = append(out, leaf)
	}
	return out
}
