// Package archtest holds the rules of who may import whom. It has no product code: its test reads the tree.
package archtest

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Import is one import of one file.
type Import struct {
	// From is the importing package's path, To the imported one's.
	From, To string
	// Test: the file is a test's.
	Test bool
}

// Tree is what the rules judge.
type Tree struct {
	// Packages by path, with the name that they declare.
	Packages map[string]string
	Imports  []Import
}

// Modules of the workspace by their directory below the root.
var modules = []string{"proto", "ferry", "services", "gateway", "e2e"}

// module is what every path of ours begins with.
const module = "ankusa.dev/"

// Read parses the imports of every module below the root, those of generated code excepted. Modules that do not exist
// yet are left out.
func Read(root string) (Tree, error) {
	t := Tree{Packages: map[string]string{}}
	err := eachFile(root, func(path string) error { return t.add(root, path) })
	return t, err
}

// eachFile calls f for every Go file of every module below the root but for directories of generated code.
func eachFile(root string, f func(path string) error) error {
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(root, m, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := walk(filepath.Join(root, m), f); err != nil {
			return fmt.Errorf("read module %s: %w", m, err)
		}
	}
	return nil
}

func walk(dir string, f func(path string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains([]string{"testdata", "gen", "node_modules"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go":
			return nil
		default:
			return f(path)
		}
	})
}

func (t *Tree) add(root, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	dir, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	from, test := module+filepath.ToSlash(dir), strings.HasSuffix(path, "_test.go")
	if !test {
		t.Packages[from] = file.Name.Name
	}
	for _, spec := range file.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		t.Imports = append(t.Imports, Import{From: from, To: to, Test: test})
	}
	return nil
}
