package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"ankusa.dev/gateway"
	eventv1 "ankusa.dev/proto/gen/ankusa/event/v1"
)

type eventServer = grpc.ServerStreamingServer[eventv1.WatchResponse]

const plainEvent = `{"event":"failed","at":1700000000000,"tenant_id":"acme","source_id":"acme.s","sink_index":0,"sink":"http",` +
	`"id":"i","attempt":2,"reason":"http: status 503","error_class":"transient","status":503,"duration_ms":12,` +
	`"next_due_at":1700000001000,"resume":"r1"}`

func failedEvent() *eventv1.WatchResponse {
	return &eventv1.WatchResponse{
		Event: "failed", At: 1700000000000, TenantId: "acme", SourceId: "acme.s", Sink: "http", Id: "i", Attempt: 2,
		Reason: "http: status 503", ErrorClass: "transient", Status: 503, DurationMs: 12, NextDueAt: 1700000001000, Resume: "r1",
	}
}

func TestEventsAreBareLines(t *testing.T) {
	var got *eventv1.WatchRequest
	a := serve(t, &scheduler{watch: func(r *eventv1.WatchRequest, s eventServer) error {
		got = r
		for range 2 {
			if err := s.Send(failedEvent()); err != nil {
				return err
			}
		}
		return nil
	}})
	res := a.do(http.MethodGet, "/v1/events?tenant=acme&source_id=acme.s&sink=http&outcome=failed&outcome=dead&resume=r0", "")
	require.Equal(t, http.StatusOK, res.status)
	require.Equal(t, "application/x-ndjson", res.header.Get("Content-Type"))
	require.Equal(t, plainEvent+"\n"+plainEvent, res.body)
	require.Equal(t, []string{"acme", "acme.s", "http", "failed,dead", "r0"},
		[]string{got.GetTenant(), got.GetSourceId(), got.GetSink(), strings.Join(got.GetOutcome(), ","), got.GetResume()})
}

func TestEventsAreServerSentOnRequestAndResumeBehindTheLastId(t *testing.T) {
	var got *eventv1.WatchRequest
	a := serve(t, &scheduler{watch: func(r *eventv1.WatchRequest, s eventServer) error {
		got = r
		if err := s.Send(failedEvent()); err != nil {
			return err
		}
		return explained(t, codes.Unavailable, "dispatch_unavailable", nil)
	}})
	res := a.do(http.MethodGet, "/v1/events?resume=old", "", "Accept", "text/event-stream;q=1, */*", "Last-Event-ID", "r0")
	require.Equal(t, http.StatusOK, res.status)
	require.Equal(t, "text/event-stream", res.header.Get("Content-Type"))
	require.Equal(t, "no-cache", res.header.Get("Cache-Control"))
	require.Equal(t, "id: r1\ndata: "+plainEvent+"\n\ndata: {\"error\":\"dispatch_unavailable\"}\n", res.body)
	require.Equal(t, "r0", got.GetResume(), "the id is newer than the URL")
}

func TestAStreamIsAnsweredBeforeItsFirstEvent(t *testing.T) {
	events := make(chan *eventv1.WatchResponse)
	ended := make(chan error, 1)
	a := serve(t, &scheduler{watch: func(_ *eventv1.WatchRequest, s eventServer) error {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		for {
			select {
			case e := <-events:
				if err := s.Send(e); err != nil {
					return err
				}
			case <-s.Context().Done():
				ended <- s.Context().Err()
				return s.Context().Err()
			}
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	res := a.open(ctx, http.MethodGet, "/v1/events", "")
	require.Equal(t, http.StatusOK, res.StatusCode)

	events <- failedEvent()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, plainEvent+"\n", line)

	cancel()
	require.ErrorIs(t, <-ended, context.Canceled, "a client that goes ends the call")
	require.NoError(t, res.Body.Close())
}

func TestAStreamThatIsRefusedIsAnOrdinaryError(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		body   string
	}{
		"expired":      {explained(t, codes.OutOfRange, "resume_expired", nil), http.StatusGone, `{"error":"resume_expired"}`},
		"no leader":    {status.Error(codes.Unavailable, "internals"), http.StatusServiceUnavailable, `{"error":"dispatch_unavailable"}`},
		"filter":       {explained(t, codes.InvalidArgument, "invalid_filter", map[string]string{"field": "outcome"}), http.StatusBadRequest, `{"error":"invalid_filter","field":"outcome"}`},
		"over at once": {nil, http.StatusServiceUnavailable, `{"error":"dispatch_unavailable"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, &scheduler{watch: func(*eventv1.WatchRequest, eventServer) error { return c.err }})
			for _, accept := range []string{"*/*", "text/event-stream"} {
				res := a.do(http.MethodGet, "/v1/events", "", "Accept", accept)
				require.Equal(t, c.status, res.status)
				require.Equal(t, c.body, res.body)
			}
		})
	}
}

func TestAStreamThatEndsWithAnErrorBeforeItsFirstEventSaysSoInALine(t *testing.T) {
	a := serve(t, &scheduler{watch: func(_ *eventv1.WatchRequest, s eventServer) error {
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "internals")
	}})
	res := a.do(http.MethodGet, "/v1/events", "")
	require.Contains(t, []int{http.StatusOK, http.StatusServiceUnavailable}, res.status)
	require.Equal(t, `{"error":"dispatch_unavailable"}`, res.body)
}

func TestALeaderThatDoesNotAcceptAStreamIsAnsweredFor(t *testing.T) {
	a := serve(t, &scheduler{watch: func(_ *eventv1.WatchRequest, s eventServer) error {
		<-s.Context().Done()
		return s.Context().Err()
	}}, func(c *gateway.Config) { c.CallTimeout = 50 * time.Millisecond })
	res := a.do(http.MethodGet, "/v1/events", "")
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.Equal(t, `{"error":"dispatch_unavailable"}`, res.body)
}

func TestAStreamMoreThanTheCapIsTurnedAwayAndAPlaceIsFreedAtItsEnd(t *testing.T) {
	ended := make(chan struct{}, 1)
	a := serve(t, &scheduler{watch: func(_ *eventv1.WatchRequest, s eventServer) error {
		defer func() { ended <- struct{}{} }()
		if err := s.SendHeader(nil); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}}, func(c *gateway.Config) { c.MaxStreams = 1 })
	ctx, cancel := context.WithCancel(t.Context())
	first := a.open(ctx, http.MethodGet, "/v1/events", "")
	require.Equal(t, http.StatusOK, first.StatusCode)
	require.Contains(t, a.do(http.MethodGet, "/metrics", "").body, "ankusa_gateway_streams 1")

	res := a.do(http.MethodGet, "/v1/events", "")
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.Equal(t, `{"error":"overload"}`, res.body)
	require.Equal(t, "1", res.header.Get("Retry-After"))

	cancel()
	<-ended
	require.NoError(t, first.Body.Close())
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		again := a.open(ctx, http.MethodGet, "/v1/events", "")
		defer func() { require.NoError(t, again.Body.Close()) }()
		return again.StatusCode == http.StatusOK
	}, 10*time.Second, 5*time.Millisecond)
}

func TestAClientThatDoesNotReadLosesItsStream(t *testing.T) {
	ended := make(chan error, 1)
	a := serve(t, &scheduler{watch: func(_ *eventv1.WatchRequest, s eventServer) error {
		e := failedEvent()
		e.Reason = strings.Repeat("x", 1<<16)
		for {
			if err := s.Send(e); err != nil {
				ended <- err
				return err
			}
		}
	}}, func(c *gateway.Config) { c.StreamWriteTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.Error(t, <-ended)
	require.NoError(t, conn.Close())
}
