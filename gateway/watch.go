package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
)

// watcher opens event streams so that a refusal (no leader, an expired token) is known before the first byte of the
// answer, and is answered like any other error. It counts on the leader to send its header as soon as it accepts.
type watcher struct {
	eventv1.EventServiceClient
	timeout time.Duration
}

// Watch returns once the leader has accepted the stream, or the time-out is over.
func (w watcher) Watch(ctx context.Context, req *eventv1.WatchRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[eventv1.WatchResponse], error) {
	ctx, cancel := context.WithCancel(ctx)
	limit := time.AfterFunc(w.timeout, cancel)
	stream, err := w.accepted(ctx, req, opts)
	if !limit.Stop() {
		return nil, status.Error(codes.Unavailable, "the leader did not accept the stream in time")
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return stream, nil
}

func (w watcher) accepted(ctx context.Context, req *eventv1.WatchRequest, opts []grpc.CallOption) (grpc.ServerStreamingClient[eventv1.WatchResponse], error) {
	stream, err := w.EventServiceClient.Watch(ctx, req, opts...)
	if err != nil {
		return nil, err
	}
	header, err := stream.Header()
	if err != nil {
		return nil, err
	}
	if header != nil {
		return stream, nil
	}
	_, err = stream.Recv() // a stream without a header is over, and this says why
	if err == nil || errors.Is(err, io.EOF) {
		err = status.Error(codes.Unavailable, "the stream ended before it began")
	}
	return nil, err
}

// streamWriter is the answer of an event stream. It lets a client that does not read hold the stream for a bounded time
// only, and it keeps the first status: the head is sent before the first event.
type streamWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	begun   bool
}

func newStreamWriter(w http.ResponseWriter, contentType string, timeout time.Duration) *streamWriter {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache")
	return &streamWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
}

// WriteHeader sends the status, the first time.
func (s *streamWriter) WriteHeader(code int) {
	if !s.begun {
		s.begun = true
		s.ResponseWriter.WriteHeader(code)
	}
}

// Write fails once the client has not read for the time-out.
func (s *streamWriter) Write(data []byte) (int, error) {
	s.begun = true
	if err := s.extend(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(data)
}

// FlushError fails as Write does.
func (s *streamWriter) FlushError() error {
	s.begun = true
	if err := s.extend(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	return s.control.Flush()
}

// release lifts the deadline, which would otherwise meet the next request of the connection.
func (s *streamWriter) release() {
	_ = s.extend(time.Time{}) // a connection that takes no deadline is broken and carries no further request
}

func (s *streamWriter) extend(deadline time.Time) error {
	err := s.control.SetWriteDeadline(deadline)
	if errors.Is(err, http.ErrNotSupported) {
		return nil // not a network connection: nothing can block it
	}
	return err
}
