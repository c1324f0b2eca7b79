package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Environment is what a file can refer to.
type Environment struct {
	// Lookup finds a variable; nil takes the process's own.
	Lookup func(name string) (string, bool)
	// ReadFile reads a secret's file; nil takes the file system's.
	ReadFile func(path string) ([]byte, error)
}

func (e Environment) lookup(name string) (string, bool) {
	if e.Lookup == nil {
		return os.LookupEnv(name)
	}
	return e.Lookup(name)
}

func (e Environment) readFile(path string) ([]byte, error) {
	if e.ReadFile == nil {
		return readSmall(path)
	}
	return e.ReadFile(path)
}

// maxSecretFile is the most bytes of a file that a reference names.
const maxSecretFile = 1 << 20

// readSmall ends with a device, too, that has no end.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err == nil && len(content) > maxSecretFile {
		err = fmt.Errorf("more than %d bytes", maxSecretFile)
	}
	return content, errors.Join(err, f.Close())
}

// interpolate replaces the references in every text of the tree. What a reference gives is text: it is never read as
// YAML or as another reference.
func interpolate(n *node, path string, env Environment, f *faults) {
	for _, e := range n.entries {
		interpolate(e.value, join(path, e.key), env, f)
	}
	for i, item := range n.items {
		interpolate(item, join(path, strconv.Itoa(i)), env, f)
	}
	if n.kind != kindText || !strings.Contains(n.text, "${") {
		return
	}
	text, referred, err := expand(n.text, env)
	if err != nil {
		f.add(path, n.line, "%s", err)
		return
	}
	n.text, n.variable = text, referred
}

// expand replaces ${VAR}, ${VAR:-default} and ${file:/path}; $${ stands for ${. referred says whether there was one.
func expand(text string, env Environment) (out string, referred bool, err error) {
	var b strings.Builder
	for {
		start := strings.Index(text, "${")
		if start < 0 {
			b.WriteString(text)
			return b.String(), referred, nil
		}
		if start > 0 && text[start-1] == '$' {
			b.WriteString(text[:start-1] + "${")
			text = text[start+2:]
			continue
		}
		end := strings.IndexByte(text[start:], '}')
		if end < 0 {
			return "", false, fmt.Errorf("must close each ${ with }, got one that is open")
		}
		value, err := resolve(text[start+2:start+end], env)
		if err != nil {
			return "", false, err
		}
		b.WriteString(text[:start] + value)
		text, referred = text[start+end+1:], true
	}
}

func resolve(ref string, env Environment) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		return readSecret(path, env)
	}
	if strings.HasPrefix(ref, "sm:") {
		return "", fmt.Errorf("${sm:…} is not supported yet")
	}
	name, fallback, hasFallback := strings.Cut(ref, ":-")
	if !isVariable(name) {
		return "", fmt.Errorf("must hold ${VAR}, ${VAR:-default} or ${file:/path}, got ${%s}", ref)
	}
	value, set := env.lookup(name)
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("must be resolvable, got ${%s}, and that variable is not set", name)
	default:
		return value, nil
	}
}

// readSecret gives a file's content without the line end that editors add.
func readSecret(path string, env Environment) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("must name a file by an absolute path, got ${file:%s}", path)
	}
	content, err := env.readFile(path)
	if err != nil {
		return "", fmt.Errorf("must be resolvable, got ${file:%s}: %w", path, err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), nil
}

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
