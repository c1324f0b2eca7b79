// Package wire is the JSON form of the API's messages: snake_case, 64-bit integers as numbers, and a few fields whose
// JSON is plainer than their proto. One shape serves every message; its exceptions stand in this file.
package wire

import "google.golang.org/protobuf/reflect/protoreflect"

const headerNames protoreflect.FullName = "ankusa.admin.v1.HeaderNames"

// A sparse message shows only what is set: a source is read back as it was written. In every other message each field
// is always there, null where a message or an optional field is absent.
var sparse = map[protoreflect.FullName]bool{
	"ankusa.admin.v1.Source":      true,
	"ankusa.admin.v1.Verify":      true,
	"ankusa.admin.v1.Dedupe":      true,
	"ankusa.admin.v1.Sink":        true,
	"ankusa.admin.v1.OrderingKey": true,
	"ankusa.admin.v1.Retry":       true,
}

// unwrapped returns the field of a message that stands in JSON for the whole message, or nil. The proto wraps a list
// only to tell an empty one from none.
func unwrapped(m protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	if m.FullName() != headerNames {
		return nil
	}
	return m.Fields().ByName("names")
}

// takesOne reports whether one string is accepted for a list with that string alone.
func takesOne(f protoreflect.FieldDescriptor) bool {
	return f.Name() == "secret" && f.IsList() && f.Kind() == protoreflect.StringKind
}
