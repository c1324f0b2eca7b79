package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"ankusa.dev/gateway"
	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"
)

func TestCreateSourceTranslatesTheWholeShapeAndAnswers201(t *testing.T) {
	var got *adminv1.CreateSourceRequest
	a := serve(t, &scheduler{create: func(r *adminv1.CreateSourceRequest) (*adminv1.CreateSourceResponse, error) {
		got = r
		stored := proto.CloneOf(r.GetSource())
		stored.Tenant, stored.SourceId, stored.Revision = r.GetTenant(), "acme.stripe", "7"
		stored.Verify.Secret = []string{"[REDACTED]"}
		return &adminv1.CreateSourceResponse{Source: stored}, nil
	}})

	res := a.do(http.MethodPost, "/v1/tenants/acme/sources", `{
		"name": "stripe",
		"verify": {"type": "stripe", "secret": "whsec_x", "tolerance_seconds": 0},
		"dedupe": {"preset": "stripe"},
		"forward_headers": ["x-a", "x-b"],
		"retry": {"max_elapsed_ms": 9007199254740993, "jitter": false},
		"sinks": [{"type": "http", "url": "https://h/?a=1&b=<2>", "headers": {"b": "2", "a": "1"}, "secret": ["n", "o"],
		           "ordered": true, "ordering_key": {"json": "data.id"}, "timeout_ms": null}]}`)

	require.Equal(t, http.StatusCreated, res.status)
	require.Equal(t, "application/json", res.header.Get("Content-Type"))
	require.Equal(t, `{"name":"stripe","tenant":"acme","source_id":"acme.stripe",`+
		`"verify":{"type":"stripe","secret":["[REDACTED]"],"tolerance_seconds":0},"dedupe":{"preset":"stripe"},`+
		`"sinks":[{"type":"http","url":"https://h/?a=1&b=<2>","headers":{"a":"1","b":"2"},"secret":["n","o"],"ordered":true,"ordering_key":{"json":"data.id"}}],`+
		`"retry":{"jitter":false,"max_elapsed_ms":9007199254740993},"forward_headers":["x-a","x-b"],"revision":"7"}`, res.body)

	require.Equal(t, "acme", got.GetTenant())
	require.Equal(t, []string{"whsec_x"}, got.GetSource().GetVerify().GetSecret())
	require.NotNil(t, got.GetSource().GetVerify().ToleranceSeconds, "a zero that is given is not absent")
	require.Nil(t, got.GetSource().GetSinks()[0].TimeoutMs, "null is absent")
}

func TestAnEmptyHeaderListIsNotAnAbsentOne(t *testing.T) {
	var got *adminv1.Source
	a := serve(t, &scheduler{update: func(r *adminv1.UpdateSourceRequest) (*adminv1.UpdateSourceResponse, error) {
		got = r.GetSource()
		return &adminv1.UpdateSourceResponse{Source: r.GetSource()}, nil
	}})

	res := a.do(http.MethodPut, "/v1/tenants/acme/sources/s", `{"forward_headers": []}`)
	require.Equal(t, reply{http.StatusOK, res.header, `{"forward_headers":[]}`}, res)
	require.NotNil(t, got.GetForwardHeaders())

	res = a.do(http.MethodPut, "/v1/tenants/acme/sources/s", `{}`)
	require.Equal(t, `{}`, res.body)
	require.Nil(t, got.GetForwardHeaders())
}

func TestGetUpdateAndDeleteNameTheSourceByItsURL(t *testing.T) {
	var names []string
	a := serve(t, &scheduler{
		get: func(_ context.Context, r *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
			names = append(names, "get "+r.GetTenant()+"/"+r.GetName())
			return &adminv1.GetSourceResponse{Source: &adminv1.Source{Name: r.GetName()}}, nil
		},
		update: func(r *adminv1.UpdateSourceRequest) (*adminv1.UpdateSourceResponse, error) {
			names = append(names, "update "+r.GetTenant()+"/"+r.GetName())
			return &adminv1.UpdateSourceResponse{Source: r.GetSource()}, nil
		},
		remove: func(_ context.Context, r *adminv1.DeleteSourceRequest) (*adminv1.DeleteSourceResponse, error) {
			names = append(names, "delete "+r.GetTenant()+"/"+r.GetName())
			return &adminv1.DeleteSourceResponse{}, nil
		},
	})

	require.Equal(t, `{"name":"s"}`, a.do(http.MethodGet, "/v1/tenants/acme/sources/s", "").body)
	require.Equal(t, http.StatusOK, a.do(http.MethodPut, "/v1/tenants/acme/sources/s", `{"name": "other", "tenant": "other"}`).status)
	res := a.do(http.MethodDelete, "/v1/tenants/acme/sources/s", "")
	require.Equal(t, http.StatusNoContent, res.status)
	require.Empty(t, res.body)
	require.Equal(t, []string{"get acme/s", "update acme/s", "delete acme/s"}, names)
}

func TestADeletionThatTakesDeliveriesAlongIsTheLeaders(t *testing.T) {
	var deliveries []string
	var led []bool
	a := serve(t, &scheduler{remove: func(ctx context.Context, r *adminv1.DeleteSourceRequest) (*adminv1.DeleteSourceResponse, error) {
		deliveries, led = append(deliveries, r.GetDeliveries()), append(led, leads(ctx))
		return &adminv1.DeleteSourceResponse{}, nil
	}})
	for _, query := range []string{"", "?deliveries=dead_letter", "?deliveries=other"} {
		res := a.do(http.MethodDelete, "/v1/tenants/acme/sources/s"+query, "")
		require.Equal(t, http.StatusNoContent, res.status)
	}
	require.Equal(t, []string{"", "dead_letter", "other"}, deliveries, "the scheduler judges the value")
	require.Equal(t, []bool{false, true, true}, led)
	res := a.do(http.MethodDelete, "/v1/tenants/acme/sources/s?deliveries=a&deliveries=b", "")
	require.JSONEq(t, `{"error":"invalid_filter","field":"deliveries"}`, res.body)
}

func TestAnEmptyListIsAList(t *testing.T) {
	a := serve(t, &scheduler{list: func(r *adminv1.ListSourcesRequest) (*adminv1.ListSourcesResponse, error) {
		return &adminv1.ListSourcesResponse{Tenant: r.GetTenant()}, nil
	}})
	require.Equal(t, `{"tenant":"acme","entries":[]}`, a.do(http.MethodGet, "/v1/tenants/acme/sources", "").body)
}

func TestABadBodyIsRefusedWithItsPathAndNeverReachesTheScheduler(t *testing.T) {
	a := serve(t, &scheduler{create: func(*adminv1.CreateSourceRequest) (*adminv1.CreateSourceResponse, error) {
		t.Error("the scheduler was called")
		return &adminv1.CreateSourceResponse{}, nil
	}})
	for name, c := range map[string]struct{ body, message string }{
		"unknown key":        {`{"sinks":[{"type":"http","urll":"x"}]}`, "sinks[0].urll is not a known key"},
		"camel case":         {`{"forwardHeaders":[]}`, "forwardHeaders is not a known key"},
		"given twice":        {`{"name":"a","name":"b"}`, "name is given twice"},
		"wrong type":         {`{"sinks":{}}`, "sinks must be a list"},
		"secret":             {`{"verify":{"secret":5}}`, "verify.secret must be a list"},
		"secret in list":     {`{"verify":{"secret":["a",true]}}`, "verify.secret[1] must be a string"},
		"out of range":       {`{"max_headers":4294967296}`, "max_headers must be a whole number from 0 to 4294967295"},
		"negative":           {`{"max_headers":-1}`, "max_headers must be a whole number from 0 to 4294967295"},
		"fraction":           {`{"max_headers":1.5}`, "max_headers must be a whole number from 0 to 4294967295"},
		"number in quotes":   {`{"max_headers":"5"}`, "max_headers must be a whole number from 0 to 4294967295"},
		"null in a list":     {`{"sinks":[null]}`, "sinks[0] must be an object"},
		"wrapped names":      {`{"forward_headers":{"names":[]}}`, "forward_headers must be a list"},
		"no JSON":            {`{"name":}`, "name is not JSON at byte 8"},
		"cut off":            {`{"name":"a"`, "the body ends too early"},
		"nothing":            {``, "the body must be a JSON object"},
		"not an object":      {`[]`, "the body must be an object"},
		"two values":         {`{} {}`, "the body must be one JSON object"},
		"text that is bytes": {"{\"name\":\"\xff\"}", "the body must be UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			res := a.do(http.MethodPost, "/v1/tenants/acme/sources", c.body)
			require.Equal(t, http.StatusBadRequest, res.status)
			require.JSONEq(t, `{"error":"invalid_source","message":"`+c.message+`"}`, res.body)
		})
	}
}

func TestABodyOverTheCapIsRefusedWithAndWithoutALength(t *testing.T) {
	a := serve(t, &scheduler{}, func(c *gateway.Config) { c.MaxBodyBytes = 100 })
	body := `{"name":"` + strings.Repeat("a", 100) + `"}`
	res := a.do(http.MethodPost, "/v1/tenants/acme/sources", body)
	require.Equal(t, http.StatusRequestEntityTooLarge, res.status)
	require.JSONEq(t, `{"error":"payload_too_large","limit":100}`, res.body)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/tenants/acme/sources", struct{ *strings.Reader }{strings.NewReader(body)})
	require.NoError(t, err)
	req.ContentLength = -1
	chunked, err := a.client.Do(req)
	require.NoError(t, err)
	require.NoError(t, chunked.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, chunked.StatusCode)
}

func TestNoHeaderOfTheClientReachesTheScheduler(t *testing.T) {
	var seen metadata.MD
	a := serve(t, &scheduler{get: func(ctx context.Context, _ *adminv1.GetSourceRequest) (*adminv1.GetSourceResponse, error) {
		seen, _ = metadata.FromIncomingContext(ctx)
		return &adminv1.GetSourceResponse{Source: &adminv1.Source{}}, nil
	}})
	res := a.do(http.MethodGet, "/v1/tenants/acme/sources/s", "",
		"Authorization", "Bearer x", "Grpc-Metadata-Evil", "1", "Grpc-Timeout", "nonsense", "X-Http-Method-Override", "DELETE")
	require.Equal(t, http.StatusOK, res.status)
	require.NotContains(t, seen, "authorization")
	require.NotContains(t, seen, "evil")
	require.NotContains(t, seen, "grpcgateway-authorization")
}
