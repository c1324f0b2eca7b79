package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with a source.
type Fault struct {
	// Key is the dotted key: "sources.stripe.sinks.0.url".
	Key string
	// Problem continues the key to a sentence: "must be 1 to 8, got 9". It never holds a secret.
	Problem string
}

// String is one line, whatever the key holds.
func (f Fault) String() string { return ShowKey(f.Key) + " " + f.Problem }

// ShowKey is a dotted key for people: quoted where it holds anything but visible ASCII and spaces.
func ShowKey(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return strconv.Quote(key)
	}
	return key
}

// Faults is everything that is wrong, in the order of the keys.
type Faults []Fault

// Error names every fault on a line of its own.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// err is nil for no faults.
func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// add leaves a key with the first of its faults: what is judged after it may be a default that stands in for it.
func (f *Faults) add(key, format string, args ...any) {
	if slices.ContainsFunc(*f, func(known Fault) bool { return known.Key == key }) {
		return
	}
	*f = append(*f, Fault{Key: key, Problem: fmt.Sprintf(format, args...)})
}

func (f *Faults) must(key, constraint string, got any) {
	f.add(key, "must be %s, got %s", constraint, show(got))
}

func (f *Faults) notYet(key, what string) { f.add(key, "%s is not supported yet", what) }

func (f *Faults) between(key string, got, low, high int64) {
	if got < low || got > high {
		f.must(key, fmt.Sprintf("%d to %d", low, high), got)
	}
}

func (f *Faults) oneOf(key, got string, allowed ...string) {
	for _, a := range allowed {
		if got == a {
			return
		}
	}
	f.must(key, oneOf(allowed), got)
}

func oneOf(allowed []string) string { return "one of " + strings.Join(allowed, ", ") }

// maxShown bounds how much of a wrong value a fault repeats.
const maxShown = 64

// show renders a value for people. It is for values that cannot be secret.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return showText(v)
	case Text:
		return "another value"
	case map[string]any:
		return "a mapping"
	case []any, []string:
		return "a list"
	default:
		return showText(fmt.Sprint(v))
	}
}

func showText(s string) string {
	if s == "" {
		return "an empty text"
	}
	if len(s) > maxShown {
		s = s[:maxShown] + "..."
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}

// kindOf says what a value is without showing it.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case bool:
		return "a boolean"
	case string, Text:
		return "a text"
	default:
		return "a number"
	}
}

func at(key, sub string) string {
	if key == "" {
		return sub
	}
	return key + "." + sub
}
