package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"ankusa.dev/services/internal/source"
)

const key32 = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func tree(t testing.TB, text string) any {
	t.Helper()
	var v any
	require.NoError(t, yaml.Unmarshal([]byte(text), &v))
	return v
}

const full = `
stripe:
  tenant: acme
  verify: {type: stripe, secret: [new, old], tolerance_seconds: 60}
  dedupe: {preset: stripe}
  retry: {base_ms: 50, max_ms: 1000, max_attempts: 7, jitter: false, max_elapsed_ms: 3600000}
  forward_headers: [Stripe-Signature]
  max_headers: 3
  forward_headers_max_bytes: 100
  spread: 4
  sinks:
    - {type: http, url: "https://a.example/x", method: PUT, headers: {Authorization: Bearer b}, timeout_ms: 100,
       secret: ` + key32 + `, max_response_bytes: 10, cacertfile: /ca.pem, allow_insecure_tls: true}
    - type: log
own:
  verify: {type: hmac, secret: s, signature_header: X-Sig, signed: "{header:X-Id}.{ts}.{body}", parse: space_versions,
    version: v2, hash: sha512, encoding: base64, secret_decode: raw, timestamp_header: X-Ts}
  dedupe: {json: data.id, ttl_seconds: 5}
  sinks: [{type: log}]
plain:
  verify: {type: none}
  sinks: [{type: http, url: "http://b.example", allow_unsigned: true}]
`

func TestEveryKeyIsDecoded(t *testing.T) {
	list, err := source.DecodeAll("sources", tree(t, full), source.Rules{})
	require.NoError(t, err)
	require.Len(t, list, 3)
	own, plain, stripe := list[0], list[1], list[2]

	require.Equal(t, "acme.stripe", stripe.ID())
	require.Equal(t, 60*time.Second, stripe.Verify.Tolerance)
	require.Equal(t, "old", stripe.Verify.Secrets[1].Reveal())
	require.Equal(t, []string{"stripe-signature"}, stripe.ForwardHeaders)
	require.EqualValues(t, 4, stripe.Spread)
	require.EqualValues(t, 7, *stripe.Retry.MaxAttempts)
	require.False(t, *stripe.Retry.Jitter)
	require.Equal(t, "Bearer b", stripe.Sinks[0].HTTP.Headers["authorization"].Reveal())
	require.Equal(t, "put", stripe.Sinks[0].HTTP.Method)

	require.Equal(t, source.Scheme{
		SignatureHeader: "x-sig", Signed: "{header:X-Id}.{ts}.{body}", Parse: "space_versions", Version: "v2",
		Hash: "sha512", Encoding: "base64", SecretDecode: "raw", TimestampHeader: "x-ts",
	}, own.Verify.Scheme)
	require.Equal(t, source.DefaultTolerance, own.Verify.Tolerance)
	require.Equal(t, 5*time.Second, own.Dedupe.TTL)

	require.Equal(t, "plain", plain.ID())
	require.Equal(t, source.DefaultHTTPTimeout, plain.Sinks[0].HTTP.Timeout)
	require.Nil(t, plain.ForwardHeaders)
	require.EqualValues(t, 1, plain.Spread)
}

func TestYAMLAndJSONHaveOneShape(t *testing.T) {
	fromYAML, err := source.DecodeAll("sources", tree(t, full), source.Rules{})
	require.NoError(t, err)
	text, err := yaml.YAMLToJSON([]byte(full))
	require.NoError(t, err)
	parsed, err := source.ParseJSON(text)
	require.NoError(t, err)
	fromJSON, err := source.DecodeAll("sources", parsed, source.Rules{})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(fromYAML, fromJSON))
}

func TestAllFaultsAreNamedAtOnceByDottedKey(t *testing.T) {
	_, err := source.DecodeAll("sources", tree(t, `
bad name:
  verify: {type: stripe, secret: [""], tolerance_seconds: 0, signed: x}
  on_verify_failure: quarantine
  colour: red
  dedupe: {preset: github, json: "a.#.b", ttl_seconds: -1}
  max_headers: many
  sinks:
    - {type: http, url: "ftp://x", method: get, headers: {X-Ankusa-Id: v}, ordered: true, ordering_key: {header: Authorization}, pool: {}}
    - {type: rabbitmq, url: amqp://secret}
    - {type: fax, number: 1}
`), source.Rules{})
	want := []string{
		`sources.bad name.max_headers must be a whole number from 0 to 4294967295, got a text`,
		`sources.bad name.dedupe.ttl_seconds must be a whole number from 0 to 4294967295, got -1`,
		`sources.bad name.sinks.0.pool pool is not supported yet`,
		`sources.bad name.colour must be absent, got a key that is not known here`,
		`sources.bad name.name must be 1 to 64 of [A-Za-z0-9_-], got bad name`,
		`sources.bad name.verify.signed must be absent for verify type stripe, got x`,
		`sources.bad name.verify.secret.0 must be non-empty, got an empty text`,
		`sources.bad name.verify.tolerance_seconds must be 1 to 604800, got 0`,
		`sources.bad name.on_verify_failure quarantine is not supported yet`,
		`sources.bad name.dedupe must be exactly one of preset, header, json, got 2`,
		`sources.bad name.dedupe.json must be a dot path of plain names, got a.#.b`,
		`sources.bad name.sinks.0.url must be an absolute http or https URL without credentials and fragment, got the scheme ftp`,
		`sources.bad name.sinks.0.method must be one of post, put, patch, got get`,
		`sources.bad name.sinks.0.headers.x-ankusa-id must be a header name that the delivery does not set itself, got x-ankusa-id`,
		`sources.bad name.sinks.0.secret must be 1 to 8 secrets unless allow_unsigned is true, got none`,
		`sources.bad name.sinks.1.type rabbitmq is not supported yet`,
		`sources.bad name.sinks.2.type must be one of log, http, got fax`,
		`sources.bad name.sinks.0.ordering_key.header must be a header that is stored with the hook, got authorization`,
	}
	require.ElementsMatch(t, want, strings.Split(err.Error(), "\n"))
}

func TestFaultsOfOneSource(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"no verify":        {`sinks: [{type: log}]`, "verify.type must be one of none, stripe, github, standard_webhooks, shopify, slack, hmac, got an empty text"},
		"unbuilt verifier": {`{verify: {type: ed25519, key: x}, sinks: [{type: log}]}`, "verify.type ed25519 is not supported yet"},
		"no sinks":         {`{verify: {type: none}}`, "sinks must be a list of 1 to 64, got 0"},
		"too many secrets": {`{verify: {type: github, secret: [a,b,c,d,e,f,g,h,i]}, sinks: [{type: log}]}`, "verify.secret must be 1 to 8 secrets, got 9"},
		"no secret":        {`{verify: {type: github}, sinks: [{type: log}]}`, "verify.secret must be 1 to 8 secrets, got 0"},
		"secret for none":  {`{verify: {type: none, secret: a}, sinks: [{type: log}]}`, "verify.secret must be absent for verify type none, got a secret"},
		"tolerance without time": {`{verify: {type: github, secret: a, tolerance_seconds: 5}, sinks: [{type: log}]}`,
			"verify.tolerance_seconds must be absent for a signature without a time, got 5"},
		"undecodable key": {`{verify: {type: standard_webhooks, secret: "whsec_!"}, sinks: [{type: log}]}`,
			"verify.secret.0 must be base64, with or without whsec_ before it, got [REDACTED]"},
		"undecodable sink key": {`{verify: {type: none}, sinks: [{type: http, url: "https://a", secret: whsec_abc}]}`,
			"sinks.0.secret.0 must be base64 after whsec_, got [REDACTED]"},
		"placeholder as a secret": {`{verify: {type: github, secret: "[REDACTED]"}, sinks: [{type: log}]}`,
			"verify.secret.0 must be a secret, since none is stored for it, got [REDACTED]"},
		"body not signed": {`{verify: {type: hmac, secret: a, signature_header: x, signed: "{ts}", timestamp_header: y}, sinks: [{type: log}]}`,
			"verify.signed must be a text with {body}, or anybody could change the body, got {ts}"},
		"time not signed": {`{verify: {type: hmac, secret: a, signature_header: x, timestamp_header: y}, sinks: [{type: log}]}`,
			"verify.signed must be a text with {ts}, or anybody could change the time, got {body}"},
		"time from nowhere": {`{verify: {type: hmac, secret: a, signature_header: x, signed: "{ts}{body}"}, sinks: [{type: log}]}`,
			"verify.signed must be without {ts} unless there is a timestamp_header or parse is csv_pairs, got {ts}{body}"},
		"unknown placeholder": {`{verify: {type: hmac, secret: a, signature_header: x, signed: "{body}{url}"}, sinks: [{type: log}]}`,
			"verify.signed must be a text with the placeholders {body}, {ts} and {header:NAME}, got {body}{url}"},
		"pairs without key": {`{verify: {type: hmac, secret: a, signature_header: x, parse: csv_pairs}, sinks: [{type: log}]}`,
			"verify.sig_key must be a text without comma, equals sign or space for parse csv_pairs, got an empty text"},
		"reserved header forwarded": {`{verify: {type: none}, forward_headers: [Cookie], sinks: [{type: log}]}`,
			"forward_headers.0 must be a header name that may be forwarded, got cookie"},
		"own header forwarded": {`{verify: {type: none}, forward_headers: [X-Ankusa-Id], sinks: [{type: log}]}`,
			"forward_headers.0 must be a header name that may be forwarded, got x-ankusa-id"},
		"framing header set": {`{verify: {type: none}, sinks: [{type: http, url: "https://a", secret: a, headers: {Host: b}}]}`,
			"sinks.0.headers.host must be a header name that the delivery does not set itself, got host"},
		"header with line break": {`{verify: {type: none}, sinks: [{type: http, url: "https://a", secret: a, headers: {X-A: "b\r\nc"}}]}`,
			"sinks.0.headers.x-a must be visible ASCII without space around it, got [REDACTED]"},
		"credentials in URL": {`{verify: {type: none}, sinks: [{type: http, url: "https://u:hunter2@a", secret: a}]}`,
			"sinks.0.url must be an absolute http or https URL without credentials and fragment, got credentials in it"},
		"no direct mode": {`{verify: {type: none}, durability: none, sinks: [{type: log}]}`, "durability none is not supported yet"},
		"stored headers": {`{verify: {type: none}, store_headers: {}, sinks: [{type: log}]}`, "store_headers store_headers is not supported yet"},
		"key without order": {`{verify: {type: none}, sinks: [{type: log, ordering_key: {header: x}}]}`,
			"sinks.0.ordering_key must be absent unless ordered is true, got a key"},
		"base above max": {`{verify: {type: none}, retry: {base_ms: 500, max_ms: 100}, sinks: [{type: log}]}`,
			"retry.max_ms must be at least base_ms, 500, got 100"},
		"url of a log":   {`{verify: {type: none}, sinks: [{type: log, url: "https://a"}]}`, "sinks.0.url must be absent, got a key that is not known here"},
		"spread of zero": {`{verify: {type: none}, spread: 0, sinks: [{type: log}]}`, "spread must be 1 to 252, got 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s, decoding := source.Decode("", tree(t, c.yaml))
			s.Name = "a"
			var all []string
			for _, err := range []error{decoding, s.Validate("", source.Rules{})} {
				if err != nil {
					all = append(all, err.Error())
				}
			}
			require.Equal(t, c.want, strings.Join(all, "\n"))
		})
	}
}

func TestASharedUnverifiedSourceTrustsNoURLUnlessToldTo(t *testing.T) {
	s, err := source.Decode("", tree(t, `{name: a, verify: {type: none}, sinks: [{type: log}]}`))
	require.NoError(t, err)
	require.NoError(t, s.Validate("", source.Rules{}))
	require.ErrorContains(t, s.Validate("", source.Rules{TenantFromURL: true}), "trust_url_tenant must be true")
	s.TrustURLTenant = true
	require.NoError(t, s.Validate("", source.Rules{TenantFromURL: true}))
	s.TrustURLTenant, s.Tenant = false, "acme"
	require.NoError(t, s.Validate("", source.Rules{TenantFromURL: true}))
}

func TestTwoSourcesOfOneNameAreRefusedAndOfTwoTenantsTaken(t *testing.T) {
	_, err := source.DecodeAll("sources", tree(t, `
a: {verify: {type: none}, sinks: [{type: log}]}
b: {name: a, verify: {type: none}, sinks: [{type: log}]}`), source.Rules{})
	require.EqualError(t, err, `sources.b must be a source of its own, got the name of sources.a`)
	list, err := source.DecodeAll("sources", tree(t, `
a: {verify: {type: none}, sinks: [{type: log}]}
b: {name: a, tenant: acme, verify: {type: none}, sinks: [{type: log}]}`), source.Rules{})
	require.NoError(t, err)
	require.Equal(t, "acme.a", list[1].ID())
}

func TestTextWhoseKindIsOpenIsReadAsTheFieldDemandsAndNeverShown(t *testing.T) {
	s, err := source.Decode("", map[string]any{
		"verify":           map[string]any{"type": source.Text("stripe"), "secret": source.Text("k"), "tolerance_seconds": source.Text("9")},
		"trust_url_tenant": source.Text("true"),
	})
	require.NoError(t, err)
	require.Equal(t, 9*time.Second, s.Verify.Tolerance)
	require.True(t, s.TrustURLTenant)
	_, err = source.Decode("", map[string]any{"max_headers": source.Text("hunter2"), "trust_url_tenant": source.Text("hunter2")})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestJSONIsOneValueWithoutRepeatedKeys(t *testing.T) {
	for _, text := range []string{``, `{`, `{"a":1,"a":2}`, `{} {}`, `{"a":hunter2}`} {
		_, err := source.ParseJSON([]byte(text))
		require.ErrorIs(t, err, source.ErrNotJSON, text)
	}
}

func FuzzDecodeNeverFailsWithoutAFault(f *testing.F) {
	f.Add([]byte(`{"verify":{"type":"hmac","secret":["a"]},"sinks":[{"type":"http"}],"spread":1e3}`))
	f.Add([]byte(`{"sinks":{"a":1},"retry":[],"dedupe":null,"forward_headers":["a",1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := source.ParseJSON(text)
		if err != nil {
			return
		}
		s, err := source.Decode("k", v)
		require.NotNil(t, s)
		if err != nil || s.Validate("k", source.Rules{}) != nil {
			return
		}
		stored, err := s.Marshal()
		require.NoError(t, err)
		back, err := source.Unmarshal(stored)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(s, back))
	})
}
