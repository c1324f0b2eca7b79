package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

type kind uint8

const (
	kindNull kind = iota
	kindText
	kindWhole
	kindFloat
	kindBool
	kindMap
	kindList
)

// node is one value of the file with the line that it stands on.
type node struct {
	kind kind
	line int
	// text of a scalar, after interpolation.
	text string
	// written is the scalar as it stands in the file, for people: never what a variable held.
	written string
	// variable: the text holds the value of a variable or a file, so its kind is for the field to decide.
	variable bool
	entries  []entry
	items    []*node
}

type entry struct {
	key   string
	line  int
	value *node
}

func (n *node) get(key string) *entry {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// parse reads one YAML document of plain mappings, lists and scalars. Anchors, aliases, tags and merge keys are
// refused: what a file says stands where it is read.
func parse(text []byte) (*node, []Fault) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // what some editors put before UTF-8
	if !utf8.Valid(text) {
		return nil, []Fault{{Problem: "the file must be UTF-8, got other bytes"}}
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, []Fault{syntaxFault(err, text)}
	}
	if len(file.Docs) > 1 && file.Docs[1].Body != nil {
		line := file.Docs[1].Body.GetToken().Position.Line
		return nil, []Fault{{Line: line, Problem: "the file must be one document, got another"}}
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return &node{kind: kindMap, line: 1}, nil
	}
	var p treeParser
	root := p.value(file.Docs[0].Body, "")
	if root.kind == kindNull {
		root.kind = kindMap
	}
	return root, p.list
}

// syntaxFault takes the parser's message without its excerpt of the file, which could show a secret.
func syntaxFault(err error, text []byte) Fault {
	var detail yaml.Error
	if !errors.As(err, &detail) {
		return Fault{Problem: "the file is not YAML"}
	}
	f := Fault{Problem: "the file is not YAML: " + detail.GetMessage()}
	if t := detail.GetToken(); t != nil && t.Position != nil {
		f.Line = t.Position.Line
	}
	if lines := bytes.Split(text, []byte("\n")); f.Line > 0 && f.Line <= len(lines) && bytes.Contains(lines[f.Line-1], []byte("${")) {
		f.Problem += "; within braces or brackets a value with ${ must be quoted"
	}
	return f
}

// wholeNumber is how a number is written: 0777 is 511 to YAML and 777 to most people.
const wholeNumber = "a whole number in decimal, without a plus or zeros before it"

type treeParser struct{ faults }

func (p *treeParser) value(n ast.Node, path string) *node {
	out := &node{}
	if n == nil {
		return out
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.line = t.Position.Line
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		p.mapping(out, path, n.Values)
	case *ast.MappingValueNode:
		p.mapping(out, path, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = kindList
		for i, item := range n.Values {
			out.items = append(out.items, p.value(item, join(path, strconv.Itoa(i))))
		}
	default:
		p.scalar(out, path, n)
	}
	return out
}

func (p *treeParser) mapping(out *node, path string, values []*ast.MappingValueNode) {
	out.kind = kindMap
	for _, v := range values {
		token := v.Key.GetToken()
		if _, plain := v.Key.(ast.ScalarNode); !plain || v.Key.IsMergeKey() {
			p.add(path, token.Position.Line, "must hold plain keys, got %s", v.Key.Type().YAMLName())
			continue
		}
		key := token.Value
		if out.get(key) != nil {
			p.add(join(path, key), token.Position.Line, "must be given once, got it again")
			continue
		}
		out.entries = append(out.entries, entry{key: key, line: token.Position.Line, value: p.value(v.Value, join(path, key))})
	}
	if len(out.entries) > 0 {
		out.line = out.entries[0].line
	}
}

func (p *treeParser) scalar(out *node, path string, n ast.Node) {
	switch n := n.(type) {
	case *ast.NullNode:
		out.kind, out.text = kindNull, "null"
	case *ast.StringNode:
		out.kind, out.text = kindText, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindText, n.Value.Value
	case *ast.IntegerNode:
		out.kind, out.text = kindWhole, fmt.Sprint(n.Value)
		if written := n.GetToken().Value; strings.ReplaceAll(written, "_", "") != out.text {
			p.add(path, out.line, "must be %s, got %s", wholeNumber, quote(written))
		}
	case *ast.FloatNode:
		out.kind, out.text = kindFloat, n.GetToken().Value
	case *ast.BoolNode:
		out.kind, out.text = kindBool, strconv.FormatBool(n.Value)
	default:
		p.add(path, out.line, "must be a plain value, got %s", n.Type().YAMLName())
	}
	out.written = out.text
}
