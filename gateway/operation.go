package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// An operation is one route of the API, as the HTTP rule of its RPC states it.
type operation struct {
	verb   string
	path   string
	query  map[string]protoreflect.FieldDescriptor // parameters by name
	body   protoreflect.MessageType                // nil for none
	fault  string                                  // error code of a bad body
	stream bool
}

func operationsOf(files ...protoreflect.ServiceDescriptors) ([]operation, error) {
	var all []operation
	for _, services := range files {
		for i := range services.Len() {
			methods := services.Get(i).Methods()
			for j := range methods.Len() {
				op, err := operationOf(methods.Get(j))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", methods.Get(j).FullName(), err)
				}
				all = append(all, op)
			}
		}
	}
	return all, nil
}

func operationOf(m protoreflect.MethodDescriptor) (operation, error) {
	rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok || rule == nil {
		return operation{}, errors.New("no google.api.http rule")
	}
	op := operation{stream: m.IsStreamingServer(), query: map[string]protoreflect.FieldDescriptor{}}
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		op.verb, op.path = http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		op.verb, op.path = http.MethodPost, p.Post
	case *annotations.HttpRule_Put:
		op.verb, op.path = http.MethodPut, p.Put
	case *annotations.HttpRule_Patch:
		op.verb, op.path = http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		op.verb, op.path = http.MethodDelete, p.Delete
	default:
		return operation{}, errors.New("its rule names no standard method")
	}
	fields := m.Input().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		inPath := strings.Contains(op.path, "{"+string(f.Name())+"}")
		if !inPath && rule.GetBody() != string(f.Name()) {
			op.query[string(f.Name())] = f
		}
	}
	err := op.readBody(m.Input(), rule.GetBody())
	return op, err
}

// readBody finds the message that the body of a request becomes. A body that is the whole request is not used: the
// parameters of the path could not be told from it.
func (op *operation) readBody(input protoreflect.MessageDescriptor, name string) error {
	if name == "" {
		return nil
	}
	f := input.Fields().ByName(protoreflect.Name(name))
	if f == nil || f.Message() == nil {
		return fmt.Errorf("its body %q is not a message field", name)
	}
	body, err := protoregistry.GlobalTypes.FindMessageByName(f.Message().FullName())
	op.body, op.fault = body, "invalid_"+name
	return err
}
