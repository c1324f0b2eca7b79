package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"ankusa.dev/services/internal/config"
)

// key is one key of the file, with what its field's comment says.
type key struct {
	path, doc, variables string
	group, reload        bool
	// standard is the default as the file would say it; empty for a group.
	standard string
}

// keys lists all keys in the order of their declaration. dir holds the source of package config.
func keys(dir string) ([]key, error) {
	comments, err := fieldComments(dir)
	if err != nil {
		return nil, err
	}
	return collect(reflect.ValueOf(config.Default()), "", comments), nil
}

// fieldComments gives each field's comment by "Type.Field".
func fieldComments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("read the fields of %s: %w", name, err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				addComments(out, spec)
			}
			return true
		})
	}
	return out, nil
}

func addComments(out map[string]string, spec *ast.TypeSpec) {
	group, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range group.Fields.List {
		for _, name := range f.Names {
			out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
	}
}

func collect(v reflect.Value, path string, comments map[string]string) []key {
	var out []key
	for f, value := range v.Fields() {
		name := f.Tag.Get("key")
		if path != "" {
			name = path + "." + name
		}
		k := key{
			path: name, doc: comments[v.Type().Name()+"."+f.Name],
			variables: f.Tag.Get("env"), group: value.Kind() == reflect.Struct, reload: f.Tag.Get("reload") == "true",
		}
		if !k.group {
			k.standard = standard(value, name)
		}
		out = append(out, k)
		switch {
		case k.group:
			out = append(out, collect(value, name, comments)...)
		case value.Kind() == reflect.Map && value.Type().Elem().Kind() == reflect.Struct:
			out = append(out, collect(reflect.New(value.Type().Elem()).Elem(), name+".<id>", comments)...)
		}
	}
	return out
}

// standard writes a default as the field's comment has to state it.
func standard(v reflect.Value, path string) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return standard(v.Elem(), path)
	case reflect.Slice:
		return "[]"
	case reflect.Map:
		return "{}"
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	}
	if v.Type().String() == "time.Duration" {
		return fmt.Sprint(v.Int() / int64(config.Unit(path)))
	}
	return fmt.Sprint(v.Interface())
}

var defaultSentence = regexp.MustCompile(`Default ("[^"]*"|[^\s.,;]+)`)

// statedDefault is the default that a comment states, or empty.
func statedDefault(doc string) string {
	match := defaultSentence.FindStringSubmatch(doc)
	if match == nil {
		return ""
	}
	return match[1]
}

const head = `# Configuration

<!-- Made by "go generate ./internal/config" in services/ from the fields of that package. Do not edit. -->

Every process of a deployment reads the same YAML file: ` + "`/etc/ankusa/ankusa.yml`" + `, or the one that
` + "`ANKUSA_CONFIG`" + ` or the flag ` + "`--config`" + ` names. Unknown keys and bad values are refused before any port is bound: the
process names every fault with its line and dotted key and exits with code 78. ` + "`ankusa check-config`" + ` does the same
without starting anything, ` + "`ankusa print-config`" + ` shows the result as JSON with the secrets redacted.

A value may refer to what stands elsewhere. Whatever a reference gives is taken as text; it is not read as YAML again.

| form | meaning |
|---|---|
| ` + "`${VAR}`" + ` | the environment variable; it must be set |
| ` + "`${VAR:-default}`" + ` | the same, or the default where it is unset or empty |
| ` + "`${file:/abs/path}`" + ` | the content of a file, without a line end at its end |
| ` + "`$${`" + ` | the characters ` + "`${`" + ` |

Within braces or brackets quote such a value: ` + "`{secret: \"${STRIPE_SECRET}\"}`" + `. A variable that is named beside a key
overrides the file. Keys of parts that do not exist yet are refused by name. YAML anchors, aliases, tags and merge keys
are refused.

The signal SIGHUP has a process read the file again, and so has the call Reload of a scheduler for its own process. Where the
file has a fault or says nothing at all, nothing changes and the log names every fault. Otherwise the keys that say so follow: nothing that is claimed
or runs is dropped, and a lower limit only stops the next start. Those of the other keys that changed are named and wait for a
restart. The processes read each their own file, so each scheduler needs the signal; one that leads later has what it read
last.
`

// render writes the page.
func render(all []key) string {
	var b strings.Builder
	b.WriteString(head)
	inTable := false
	for _, k := range all {
		if k.group || !strings.Contains(k.path, ".") {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", k.path, k.doc)
			inTable = false
			continue
		}
		if !inTable {
			b.WriteString("\n| key | meaning |\n|---|---|\n")
			inTable = true
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.path, cell(k))
	}
	return b.String()
}

func cell(k key) string {
	text := strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(k.doc)
	if k.variables != "" {
		text += " Variable: `" + strings.ReplaceAll(k.variables, ",", "`, `") + "`."
	}
	if k.reload {
		text += " Follows a reload."
	}
	return text
}
