package sourcepb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	adminv1 "ankusa.dev/proto/gen/ankusa/admin/v1"

	"ankusa.dev/services/internal/source"
	"ankusa.dev/services/internal/source/sourcepb"
)

const wire = `
verify: {type: "hmac" secret: "a" secret: "b" signature_header: "X-Sig" signed: "{ts}.{body}" timestamp_header: "X-Ts"}
dedupe: {json: "data.id" ttl_seconds: 60}
retry: {base_ms: 5 max_ms: 10 max_attempts: 3 jitter: false max_elapsed_ms: 1000}
forward_headers: {names: "X-A"}
max_headers: 2 forward_headers_max_bytes: 3 spread: 4
sinks: {type: "http" url: "https://a.example" secret: "s" headers: {key: "X-B" value: "v"} timeout_ms: 9 max_response_bytes: 8}
sinks: {type: "log"}
`

func parse(t *testing.T, text string) *adminv1.Source {
	t.Helper()
	p := &adminv1.Source{}
	require.NoError(t, prototext.Unmarshal([]byte(text), p))
	return p
}

func TestAMessageMeansWhatTheSameTreeMeans(t *testing.T) {
	s := sourcepb.From(parse(t, wire), "acme", "x")
	require.NoError(t, s.Validate("", source.Rules{}))
	tree, err := source.ParseJSON([]byte(`{"tenant":"acme","name":"x",
		"verify":{"type":"hmac","secret":["a","b"],"signature_header":"X-Sig","signed":"{ts}.{body}","timestamp_header":"X-Ts"},
		"dedupe":{"json":"data.id","ttl_seconds":60},
		"retry":{"base_ms":5,"max_ms":10,"max_attempts":3,"jitter":false,"max_elapsed_ms":1000},
		"forward_headers":["X-A"],"max_headers":2,"forward_headers_max_bytes":3,"spread":4,
		"sinks":[{"type":"http","url":"https://a.example","secret":"s","headers":{"X-B":"v"},"timeout_ms":9,"max_response_bytes":8},{"type":"log"}]}`))
	require.NoError(t, err)
	want, err := source.Decode("", tree)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, s))
}

func TestDefaultsAreThoseOfTheTree(t *testing.T) {
	for _, kind := range []string{"none", "stripe", "hmac", "github", "slack"} {
		s := sourcepb.From(parse(t, `verify: {type: "`+kind+`"} sinks: {type: "http"} dedupe: {preset: "svix"}`), "default", "x")
		want, err := source.Decode("", map[string]any{
			"name": "x", "verify": map[string]any{"type": kind}, "dedupe": map[string]any{"preset": "svix"},
			"sinks": []any{map[string]any{"type": "http"}},
		})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, s))
	}
}

func TestWhatIsShownHoldsNoSecretAndIsWhatKeepsThem(t *testing.T) {
	s := sourcepb.From(parse(t, wire), "acme", "x")
	s.Revision = 1<<63 | 1
	shown := sourcepb.To(s)
	require.Equal(t, "acme.x", shown.SourceId)
	require.Equal(t, "9223372036854775809", shown.Revision)
	require.Equal(t, []string{source.Redacted, source.Redacted}, shown.Verify.Secret)
	require.Equal(t, map[string]string{"x-b": source.Redacted}, shown.Sinks[0].Headers)
	back, err := sourcepb.Replacement(proto.Clone(shown).(*adminv1.Source), s)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(s, back), "a source that is read and written back is the same")
}

func TestAReplacementKeepsItsSpread(t *testing.T) {
	s := sourcepb.From(parse(t, wire), "acme", "x")
	p := parse(t, wire)
	p.Spread = nil
	back, err := sourcepb.Replacement(p, s)
	require.NoError(t, err)
	require.EqualValues(t, 4, back.Spread)
	p.Spread = new(uint32(5))
	_, err = sourcepb.Replacement(p, s)
	require.EqualError(t, err, "spread must be 4 for the life of the source, got 5")
}

func TestAnEmptyMessageIsRefusedByValidation(t *testing.T) {
	for _, p := range []*adminv1.Source{nil, {}, {Sinks: []*adminv1.Sink{{}}}} {
		require.Error(t, sourcepb.From(p, "default", "x").Validate("", source.Rules{}))
	}
}

func FuzzAnyMessageIsReadAndShownWithoutHarm(f *testing.F) {
	b, err := prototext.MarshalOptions{}.Marshal(&adminv1.Source{})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(wire))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &adminv1.Source{}
		if proto.Unmarshal(text, p) != nil && prototext.Unmarshal(text, p) != nil {
			return
		}
		s := sourcepb.From(p, "acme", "x")
		if s.Validate("", source.Rules{}) != nil {
			return
		}
		back, err := sourcepb.Replacement(sourcepb.To(s), s)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(s, back))
	})
}
