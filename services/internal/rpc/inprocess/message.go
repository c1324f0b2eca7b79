package inprocess

import (
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// queued bounds the messages of one direction that wait for their receiver.
const queued = 4

// queue is one direction of a call.
type queue struct {
	messages chan any
	closed   chan struct{} // no more is sent
	once     sync.Once
}

func newQueue() *queue { return &queue{messages: make(chan any, queued), closed: make(chan struct{})} }

func (q *queue) close() { q.once.Do(func() { close(q.closed) }) }

// send waits for room; false when the call has ended.
func (q *queue) send(ended <-chan struct{}, m any) bool {
	select {
	case <-ended:
		return false
	default:
	}
	select {
	case q.messages <- m:
		return true
	case <-ended:
		return false
	}
}

// receive takes the next message in, by take. It returns io.EOF once no more is sent, or the call has ended, and all
// that was sent before has been received.
func (q *queue) receive(ended <-chan struct{}, into any, take func(into, m proto.Message)) error {
	select {
	case m := <-q.messages:
		return deliver(into, m, take)
	default:
	}
	select {
	case m := <-q.messages:
		return deliver(into, m, take)
	case <-q.closed:
	case <-ended:
	}
	select {
	case m := <-q.messages:
		return deliver(into, m, take)
	default:
		return io.EOF
	}
}

func deliver(into, m any, take func(into, m proto.Message)) error {
	to, ok := into.(proto.Message)
	from, also := m.(proto.Message)
	if !ok || !also || to.ProtoReflect().Descriptor() != from.ProtoReflect().Descriptor() {
		return status.Errorf(codes.Internal, "a message of type %T is received as %T", m, into)
	}
	take(to, from)
	return nil
}

// clone copies all of m.
func clone(into, m proto.Message) { proto.Merge(into, m) }

// share copies m alone; what it points at belongs to both from then on.
func share(into, m proto.Message) {
	to, from := into.ProtoReflect(), m.ProtoReflect()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})
	if unknown := from.GetUnknown(); len(unknown) > 0 {
		to.SetUnknown(unknown)
	}
}
