package config

import (
	"fmt"
	"slices"
	"strings"

	"ankusa.dev/services/internal/source"
)

// Fault is one thing that is wrong with a file.
type Fault struct {
	// Key is the dotted key, or empty for a fault of the whole file.
	Key string
	// Line of the file, from 1; 0 where the value does not come from the file.
	Line int
	// Problem continues the key to a sentence: "must be 0 to 65535, got 70000". It never holds what a variable or a
	// secret file held.
	Problem string
}

// String is one line, whatever stands in the file.
func (f Fault) String() string { return strings.TrimSpace(source.ShowKey(f.Key) + " " + f.Problem) }

// Error is everything that is wrong with a file, in the order of the file where there is one.
type Error struct {
	Path   string
	Faults []Fault
}

// Error names every fault on a line of its own, as path:line: key problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		at := e.Path
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", e.Path, f.Line)
		}
		lines[i] = at + ": " + f.String()
	}
	return strings.Join(lines, "\n")
}

// faults gathers what is wrong.
type faults struct{ list []Fault }

func (f *faults) add(key string, line int, format string, args ...any) {
	f.list = append(f.list, Fault{Key: key, Line: line, Problem: fmt.Sprintf(format, args...)})
}

func (f *faults) has(key string) bool {
	return slices.ContainsFunc(f.list, func(known Fault) bool { return known.Key == key })
}

func (f *faults) mustBe(key, constraint string, got any) {
	f.add(key, 0, "must be %s, got %v", constraint, got)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
