package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"ankusa.dev/gateway/internal/wire"
)

// guard refuses what the translation would take too kindly (unknown parameters and keys, large bodies) and hands on a
// request that can be understood in one way only. Headers end here.
type guard struct {
	op      operation
	cfg     Config
	streams turnstile
	next    http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !utf8.ValidString(r.URL.Path) {
		notFound(w, r)
		return
	}
	query, field := g.op.parameters(r)
	if field != "" {
		refuse(w, http.StatusBadRequest, "invalid_filter", map[string]any{"field": field})
		return
	}
	body, ok := g.body(w, r)
	if !ok {
		return
	}
	checked := r.Clone(r.Context())
	checked.URL.RawQuery = query.Encode()
	checked.Form, checked.PostForm = nil, nil
	checked.Header = http.Header{}
	checked.Body = body
	if g.op.stream {
		g.stream(w, checked, r.Header)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), g.cfg.CallTimeout)
	defer cancel()
	g.next.ServeHTTP(w, checked.WithContext(ctx))
}

func (g guard) stream(w http.ResponseWriter, checked *http.Request, asked http.Header) {
	if !g.streams.enter() {
		refuse(w, http.StatusServiceUnavailable, "overload", nil)
		return
	}
	defer g.streams.leave()
	media := lines{}.StreamContentType(nil)
	if accepts(asked, eventStream) {
		media = eventStream
		checked.Header.Set("Accept", eventStream)
	}
	events := newStreamWriter(w, media, g.cfg.StreamWriteTimeout)
	defer events.release()
	g.next.ServeHTTP(events, checked)
}

// parameters returns the parameters of a request, or the name of the first that the operation does not take, or not
// with that value. The event id that a browser sends when it connects again is newer than the token in its URL.
func (op operation) parameters(r *http.Request) (query url.Values, badField string) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, "query"
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" && op.stream {
		query.Set("resume", id)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		f := op.query[name]
		if f == nil || (len(query[name]) > 1 && !f.IsList()) {
			return nil, name
		}
		if slices.ContainsFunc(query[name], func(v string) bool { return !readable(v, f.Kind()) }) {
			return nil, name
		}
	}
	return query, ""
}

func readable(value string, kind protoreflect.Kind) bool {
	if kind == protoreflect.StringKind {
		return utf8.ValidString(value)
	}
	_, ok := wire.Integer(value, kind)
	return ok
}

// body returns the checked body of a request. Where it refuses, the answer is written and ok is false.
func (g guard) body(w http.ResponseWriter, r *http.Request) (body io.ReadCloser, ok bool) {
	if g.op.body == nil {
		return http.NoBody, true
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.cfg.MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "payload_too_large", map[string]any{"limit": tooLarge.Limit})
		return nil, false
	case err != nil:
		refuse(w, http.StatusBadRequest, "body_read_failed", nil)
		return nil, false
	}
	if err := wire.Unmarshal(data, g.op.body.New().Interface()); err != nil {
		refuse(w, http.StatusBadRequest, g.op.fault, map[string]any{"message": err.Error()})
		return nil, false
	}
	return io.NopCloser(bytes.NewReader(data)), true
}

func accepts(h http.Header, media string) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		name, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), media) {
			return true
		}
	}
	return false
}
