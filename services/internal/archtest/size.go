package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
)

// Bounds of what one has to keep in mind at once, in lines.
const (
	maxFile     = 500
	maxFunction = 60
)

// Oversized lists the files and functions of every module below the root that are over the bounds, sorted; tests count,
// generated code does not.
func Oversized(root string) (found []string, err error) {
	err = eachFile(root, func(path string) error {
		long, err := oversized(path, nil)
		found = append(found, long...)
		return err
	})
	slices.Sort(found)
	return found, err
}

// oversized judges one file: the one at the path, or src where that is not nil.
func oversized(path string, src any) (found []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	if n := line(file.FileEnd); n > maxFile {
		found = append(found, fmt.Sprintf("%s has %d lines", filepath.ToSlash(path), n))
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := line(f.End()) - line(f.Pos()) + 1; n > maxFunction {
			found = append(found, fmt.Sprintf("%s: %s has %d lines", filepath.ToSlash(path), f.Name.Name, n))
		}
	}
	return found, nil
}
