package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"ankusa.dev/gateway/internal/wire"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
)

const eventStream = "text/event-stream"

// lines is the JSON of the API. In a stream each message is a line of its own.
type lines struct{}

// Marshal also takes the envelopes in which the runtime hands over the messages and the error of a stream, and drops
// them: a line is a bare event, or an error like that of any other answer.
func (lines) Marshal(v any) ([]byte, error) {
	m, err := unpack(v)
	if err != nil {
		return nil, err
	}
	if s, ok := m.(*statuspb.Status); ok {
		code, _, fields := judge(status.FromProto(s))
		return errorBody(code, fields), nil
	}
	if m.ProtoReflect().Descriptor().Fields().Len() == 0 {
		return nil, nil // the answer of a 204
	}
	return wire.Marshal(m)
}

func unpack(v any) (proto.Message, error) {
	switch v := v.(type) {
	case proto.Message:
		return v, nil
	case map[string]any:
		return unpack(v["result"])
	case map[string]proto.Message:
		return v["error"], nil
	default:
		return nil, fmt.Errorf("encode a %T: not a message", v)
	}
}

// Unmarshal fills the message behind v, a pointer to a message's pointer.
func (lines) Unmarshal(data []byte, v any) error {
	source, ok := v.(**adminv1.Source)
	if !ok {
		return fmt.Errorf("decode into a %T: not a body of the API", v)
	}
	*source = &adminv1.Source{}
	return wire.Unmarshal(data, *source)
}

func (l lines) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(r)
		if err != nil {
			return fmt.Errorf("read body: %w", err)
		}
		return l.Unmarshal(data, v)
	})
}

func (l lines) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := l.Marshal(v)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	})
}

func (lines) ContentType(any) string       { return "application/json" }
func (lines) StreamContentType(any) string { return "application/x-ndjson" }
func (lines) Delimiter() []byte            { return []byte("\n") }

// serverSent is the stream for a browser's EventSource. The id of an event is its resume token.
type serverSent struct{ lines }

func (s serverSent) Marshal(v any) ([]byte, error) {
	data, err := s.lines.Marshal(v)
	if err != nil {
		return nil, err
	}
	var head string
	if m, err := unpack(v); err == nil {
		if event, ok := m.(*eventv1.WatchResponse); ok && event.GetResume() != "" {
			head = "id: " + event.GetResume() + "\n"
		}
	}
	return append([]byte(head+"data: "), data...), nil
}

func (serverSent) ContentType(any) string       { return eventStream }
func (serverSent) StreamContentType(any) string { return eventStream }
func (serverSent) Delimiter() []byte            { return []byte("\n\n") }

// begin sets the status of an answer that is not 200, and sends the head of a stream at once: its first event may be
// hours away.
func begin(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	if m == nil {
		return http.NewResponseController(w).Flush()
	}
	switch method, _ := runtime.RPCMethod(ctx); method {
	case adminv1.SourceService_CreateSource_FullMethodName:
		w.WriteHeader(http.StatusCreated)
	case adminv1.SourceService_DeleteSource_FullMethodName:
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}
