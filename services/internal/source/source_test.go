package source_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"pgregory.net/rapid"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/source"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func decoded(t testing.TB, text string) *source.Source {
	t.Helper()
	s, err := source.Decode("", tree(t, text))
	require.NoError(t, err)
	return s
}

func TestTheStoredFormIsGolden(t *testing.T) {
	list, err := source.DecodeAll("sources", tree(t, full), source.Rules{})
	require.NoError(t, err)
	for i, s := range list {
		s.Incarnation, s.Revision = uint64(i)+1, hook.Timestamp(i)<<60|5
		got, err := s.Marshal()
		require.NoError(t, err)
		path := filepath.Join("testdata", s.ID()+".stored.json")
		if *update {
			require.NoError(t, os.WriteFile(path, got, 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		back, err := source.Unmarshal(want)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(s, back))
	}
}

func TestAnUnreadableStoredFormSaysSo(t *testing.T) {
	for _, text := range []string{``, `{}`, `{"v":2,"spec":{}}`, `{"v":1}`, `{"v":1,"spec":{"colour":1}}`} {
		_, err := source.Unmarshal([]byte(text))
		require.ErrorIs(t, err, source.ErrStored, text)
	}
}

func TestL48_NoFormatterEncoderOrLoggerShowsASecret(t *testing.T) {
	s := decoded(t, `{name: a, verify: {type: github, secret: hunter2}, sinks: [{type: http, url: "https://a",
		secret: [hunter2], headers: {authorization: hunter2}}]}`)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%v %+v %#v %+v %v %x %d\n", s, *s, s, s.Verify, s.Sinks, s.Verify.Secrets, s.Verify.Secrets[0])
	fmt.Fprintln(&out, struct{ hidden source.Secret }{s.Verify.Secrets[0]})
	require.NoError(t, json.NewEncoder(&out).Encode(s))
	require.NoError(t, json.NewEncoder(&out).Encode(*s))
	logger := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out), zap.DebugLevel))
	logger.Info("source", zap.Any("source", s), zap.Any("verify", s.Verify), zap.Any("secret", s.Verify.Secrets[0]))
	slog.New(slog.NewJSONHandler(&out, nil)).Info("source", "source", s, "verify", s.Verify, "secret", s.Verify.Secrets[0])
	slog.New(slog.NewTextHandler(&out, nil)).Info("source", "verify", s.Verify, "secret", s.Verify.Secrets[0])
	require.Contains(t, out.String(), source.Redacted)
	for _, leak := range []string{"hunter2", "68756e74657232", "aHVudGVyMg"} {
		require.NotContains(t, out.String(), leak)
	}
	require.Equal(t, "hunter2", s.Verify.Secrets[0].Reveal())
}

func TestAReplacementKeepsTheSecretsThatItLeavesOut(t *testing.T) {
	old := decoded(t, `{name: a, verify: {type: github, secret: [v1, v2]}, sinks: [
		{type: http, url: "https://a", secret: [s1, s2], headers: {x-key: h1, x-other: h2}}, {type: log},
		{type: http, url: "https://c", secret: s3}]}`)
	next := decoded(t, `{name: a, verify: {type: github}, sinks: [
		{type: http, url: "https://b", secret: ["[REDACTED]", fresh], headers: {x-key: "[REDACTED]", x-other: new}},
		{type: http, url: "https://b", secret: "[REDACTED]"},
		{type: http, url: "https://c", allow_unsigned: true}]}`)
	next.KeepSecrets(old)
	require.Equal(t, []string{"v1", "v2"}, reveal(next.Verify.Secrets))
	require.Equal(t, []string{"s1", "fresh"}, reveal(next.Sinks[0].HTTP.Secrets))
	require.Equal(t, "h1", next.Sinks[0].HTTP.Headers["x-key"].Reveal())
	require.Equal(t, "new", next.Sinks[0].HTTP.Headers["x-other"].Reveal())
	require.Equal(t, []string{source.Redacted}, reveal(next.Sinks[1].HTTP.Secrets), "a log had none to keep")
	require.ErrorContains(t, next.Validate("", source.Rules{}), "sinks.1.secret.0 must be a secret")
	require.Empty(t, next.Sinks[2].HTTP.Secrets, "said to be unsigned")

	other := decoded(t, `{name: a, verify: {type: slack}, sinks: [{type: log}]}`)
	other.KeepSecrets(old)
	require.Empty(t, other.Verify.Secrets, "another verifier has other secrets")
}

func reveal(list []source.Secret) (texts []string) {
	for _, s := range list {
		texts = append(texts, s.Reveal())
	}
	return texts
}

func TestTheSourceRetriesAsTheInstanceDoesUnlessItSaysOtherwise(t *testing.T) {
	base := hook.DefaultRetryPolicy()
	s := decoded(t, `{name: a, retry: {max_attempts: 3, jitter: false}}`)
	p := s.RetryPolicy(base)
	require.EqualValues(t, 3, p.MaxAttempts)
	require.False(t, p.Jitter)
	require.Equal(t, base.Max, p.Max)
	require.Equal(t, base, decoded(t, `{name: a}`).RetryPolicy(base))
	s = decoded(t, `{name: a, retry: {base_ms: 7, max_ms: 8, max_elapsed_ms: 9}}`)
	p = s.RetryPolicy(base)
	require.Equal(t, []time.Duration{7e6, 8e6, 9e6}, []time.Duration{p.Base, p.Max, p.Horizon})
}

func TestAnIdentityIsSplitAsItWasJoined(t *testing.T) {
	for _, id := range []string{"stripe", "acme.stripe", "a_-1.B"} {
		tenant, name, ok := source.SplitID(id)
		require.True(t, ok)
		require.Equal(t, id, source.ID(tenant, name))
	}
	for _, id := range []string{"", ".", "a.", ".a", "a.b.c", "default.a", "a/b", "ankusa:lifecycle", "ä", strings.Repeat("a", 65)} {
		_, _, ok := source.SplitID(id)
		require.False(t, ok, id)
	}
}

func TestBindingsNameTenantSourceSinkAndType(t *testing.T) {
	s := decoded(t, `{name: stripe, tenant: acme, sinks: [{type: log}, {type: http, ordered: true, ordering_key: {json: data.customer}}]}`)
	h := &hook.Hook{Body: []byte(`{"data":{"customer":"cus_1"}}`)}
	require.Equal(t, []source.Binding{
		{Key: hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Type: "log"}},
		{Key: hook.SinkKey{Tenant: "acme", SourceID: "acme.stripe", Index: 1, Type: "http"}, Ordered: true, Lane: "cus_1"},
	}, s.Bindings("acme", h))
	require.Empty(t, s.Bindings("acme", &hook.Hook{Body: []byte(`{`)})[1].Lane, "the keyless lane, never unordered")
}

func TestEveryTypeOfSinkThatKeepsOrderMayBeOrdered(t *testing.T) {
	s := decoded(t, `{name: a, verify: {type: none}, sinks: [{type: log, ordered: true, ordering_key: {header: Content-Type}},
		{type: http, url: "https://h/", secret: "s", ordered: true, ordering_key: {json: a.b}}]}`)
	require.NoError(t, s.Validate("", source.Rules{}))
	s.Sinks[0].Type = "fax"
	require.ErrorContains(t, s.Validate("a", source.Rules{}), "a.sinks.0.ordered must be false for a type of sink that keeps no order, got true")
}

func TestI11_ALaneIsItsKeyByteForByteUpToALength(t *testing.T) {
	byHeader, byJSON := source.OrderingKey{Header: "x"}, source.OrderingKey{JSON: "k"}
	header := func(v string) *hook.Hook {
		return &hook.Hook{Headers: []hook.Header{{Name: "X", Value: v}, {Name: "x", Value: "second"}}}
	}
	text := func(v string) *hook.Hook { return &hook.Hook{Body: []byte(`{"k":"` + v + `"}`)} }
	require.Equal(t, "a b", byHeader.Lane(header("a b")))
	require.Equal(t, "é\x00", byJSON.Lane(text(`\u00e9\u0000`)))
	require.Equal(t, "-12", byJSON.Lane(&hook.Hook{Body: []byte(`{"k":-12}`)}))
	longest := strings.Repeat("k", 200)
	require.Equal(t, longest, byHeader.Lane(header(longest)))
	long, other := byHeader.Lane(header(longest+"1")), byHeader.Lane(header(longest+"2"))
	require.NotEqual(t, long, other, "a key is hashed, never cut")
	require.Len(t, long, len("sha256:")+64)
	for _, h := range []*hook.Hook{{}, header(""), text(""), {Body: []byte(`{"k":1.5}`)}, {Body: []byte(`{"k":null}`)}, {Body: []byte(`{`)}} {
		require.Empty(t, byHeader.Lane(h))
		require.Empty(t, byJSON.Lane(h))
	}
}

func TestSpreadKeepsTogetherWhatBelongsTogether(t *testing.T) {
	lanes := decoded(t, `{name: a, spread: 8, verify: {type: none}, sinks: [{type: log, ordered: true, ordering_key: {header: x}}]}`)
	keys := decoded(t, `{name: a, spread: 8, verify: {type: none}, dedupe: {header: x}, sinks: [{type: log}]}`)
	ids := decoded(t, `{name: a, spread: 8, verify: {type: none}, sinks: [{type: log}]}`)
	seen := map[uint32]bool{}
	rapid.Check(t, func(t *rapid.T) {
		id := hook.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		x := rapid.String().Draw(t, "x")
		h := &hook.Hook{ID: id, DedupeKey: x, Headers: []hook.Header{{Name: "X", Value: x}}}
		other := &hook.Hook{DedupeKey: x, Headers: h.Headers}
		require.Equal(t, lanes.Part(h), lanes.Part(other))
		if x != "" {
			require.Equal(t, keys.Part(h), keys.Part(other))
		}
		require.Less(t, ids.Part(h), uint32(8))
		seen[ids.Part(&hook.Hook{ID: id})] = true
	})
	require.Greater(t, len(seen), 4)
	require.Zero(t, decoded(t, `{name: a}`).Part(&hook.Hook{}))
}

func TestSpreadIsRefusedWhereItWouldPartWhatBelongsTogether(t *testing.T) {
	both := decoded(t, `{name: a, spread: 2, verify: {type: none}, dedupe: {header: x}, sinks: [{type: log, ordered: true}]}`)
	require.ErrorContains(t, both.Validate("", source.Rules{}), "spread must be 1 for a source with both dedupe and an ordered sink, got 2")
	two := decoded(t, `{name: a, spread: 2, verify: {type: none}, sinks: [{type: log, ordered: true, ordering_key: {header: x}},
		{type: log, ordered: true}]}`)
	require.ErrorContains(t, two.Validate("", source.Rules{}), "spread must be 1 for a source whose ordered sinks have different ordering keys, got 2")
	one := decoded(t, `{name: a, spread: 2, verify: {type: none}, sinks: [{type: log, ordered: true}, {type: log}]}`)
	require.NoError(t, one.Validate("", source.Rules{}))
}

func zipped(t testing.TB, text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestTheEventKeyIsReadWhereItStands(t *testing.T) {
	long := strings.Repeat("k", 201)
	for name, c := range map[string]struct {
		dedupe source.Dedupe
		header hook.Header
		body   string
		want   string
	}{
		"github":            {source.Dedupe{Preset: "github"}, hook.Header{Name: "X-GitHub-Delivery", Value: "d1"}, "", "d1"},
		"standard webhooks": {source.Dedupe{Preset: "standard_webhooks"}, hook.Header{Name: "webhook-id", Value: "m1"}, "", "m1"},
		"svix":              {source.Dedupe{Preset: "svix"}, hook.Header{Name: "Svix-Id", Value: "m2"}, "", "m2"},
		"shopify":           {source.Dedupe{Preset: "shopify"}, hook.Header{Name: "X-Shopify-Webhook-Id", Value: "w1"}, "", "w1"},
		"stripe":            {source.Dedupe{Preset: "stripe"}, hook.Header{}, `{"id":"evt_1"}`, "evt_1"},
		"header":            {source.Dedupe{Header: "x-id"}, hook.Header{Name: "X-ID", Value: "h"}, "", "h"},
		"deep":              {source.Dedupe{JSON: "a.b.1"}, hook.Header{}, `{"a":{"b":["x","y"]}}`, "y"},
		"integer":           {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":123456789012345678901234567890}`, "123456789012345678901234567890"},
		"negative":          {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":-5}`, "-5"},
		"fraction":          {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":1.5}`, ""},
		"exponent":          {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":1e5}`, ""},
		"boolean":           {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":true}`, ""},
		"object":            {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":{}}`, ""},
		"null":              {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":null}`, ""},
		"missing":           {source.Dedupe{JSON: "a"}, hook.Header{}, `{}`, ""},
		"not JSON":          {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":"x"`, ""},
		"escaped":           {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":"\u0078"}`, "x"},
		"long":              {source.Dedupe{Header: "x"}, hook.Header{Name: "x", Value: long}, "", "sha256:f1e39fed18b6ac9d25afc3d5df2b4ae3fb99cb92ee0ff5c7b65ff5d6b7dcdd8a"},
		"exactly 200":       {source.Dedupe{Header: "x"}, hook.Header{Name: "x", Value: long[1:]}, "", long[1:]},
		"gzip":              {source.Dedupe{JSON: "a"}, hook.Header{Name: "Content-Encoding", Value: "gzip"}, string(zipped(t, `{"a":"z"}`)), "z"},
		"bad gzip":          {source.Dedupe{JSON: "a"}, hook.Header{Name: "Content-Encoding", Value: "gzip"}, `{"a":"z"}`, ""},
		"gzip bomb":         {source.Dedupe{JSON: "a"}, hook.Header{Name: "Content-Encoding", Value: "gzip"}, string(zipped(t, `{"a":"z","b":"`+strings.Repeat("0", 2000)+`"}`)), ""},
		"body over limit":   {source.Dedupe{JSON: "a"}, hook.Header{}, `{"a":"z","b":"` + strings.Repeat("0", 2000) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.dedupe.Key(&hook.Hook{Headers: []hook.Header{c.header}, Body: []byte(c.body)}, 1000)
			if strings.HasPrefix(c.want, "sha256:") {
				require.Regexp(t, "^sha256:[0-9a-f]{64}$", got)
				return
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestL34_AKeyThatNoHeaderCanCarryIsKeptAsItsHash(t *testing.T) {
	for _, v := range []string{"a\nb", "ключ", "a\x00", " a"} {
		body, err := json.Marshal(map[string]string{"a": v})
		require.NoError(t, err)
		key := (&source.Dedupe{JSON: "a"}).Key(&hook.Hook{Body: body}, 1000)
		require.Regexp(t, "^sha256:[0-9a-f]{64}$", key)
	}
}

func TestHeadersAreForwardedByNameAndWithinTheCaps(t *testing.T) {
	headers := []hook.Header{
		{Name: "X-GitHub-Event", Value: "push"}, {Name: "Authorization", Value: "x"}, {Name: "Cookie", Value: "x"},
		{Name: "X-Ankusa-Id", Value: "x"}, {Name: "Content-Type", Value: "x"}, {Name: "Other", Value: "12345"},
	}
	s := source.New("default", "a")
	kept, count, size := s.Forward(headers)
	require.Equal(t, []hook.Header{{Name: "x-github-event", Value: "push"}, {Name: "other", Value: "12345"}}, kept)
	require.Zero(t, count+size)

	s.ForwardHeaders = []string{"other", "authorization"}
	kept, _, _ = s.Forward(headers)
	require.Equal(t, []hook.Header{{Name: "other", Value: "12345"}}, kept, "stored or not, credentials stay here")
	s.ForwardHeaders = []string{}
	kept, _, _ = s.Forward(headers)
	require.Empty(t, kept)

	s.ForwardHeaders, s.MaxHeaders = nil, 1
	kept, count, _ = s.Forward(headers)
	require.Len(t, kept, 1)
	require.Equal(t, 1, count)
	s.MaxHeaders, s.ForwardHeadersMaxBytes = 64, 10
	kept, _, size = s.Forward(headers)
	require.Equal(t, []hook.Header{{Name: "other", Value: "12345"}}, kept, "dropped whole, and what still fits goes on")
	require.Equal(t, 1, size)
}

// A body of nothing but brackets once took the whole stack, and with it the process.
func TestNoKeyIsReadFromABodyThatNestsDeeply(t *testing.T) {
	const size = 4 << 20
	gzipped := []hook.Header{{Name: "Content-Encoding", Value: "gzip"}}
	for name, body := range map[string]string{
		"lists":   `{"a":"x","b":` + strings.Repeat("[", size),
		"objects": `{"a":"x","b":` + strings.Repeat(`{"":`, size/4),
		"valid":   `{"a":"x","b":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMaxStack(16 << 20)
			defer debug.SetMaxStack(before)
			d := &source.Dedupe{JSON: "a"}
			require.Empty(t, d.Key(&hook.Hook{Body: []byte(body)}, 8<<20))
			require.Empty(t, d.Key(&hook.Hook{Headers: gzipped, Body: zipped(t, body)}, 8<<20))
		})
	}
}

func TestAKeyIsReadBesideManyBrackets(t *testing.T) {
	body := `{"text":"` + strings.Repeat("[", 100_000) + `","list":[` + strings.Repeat("[],", 100_000) + `{}],"a":"x"}`
	require.Equal(t, "x", (&source.Dedupe{JSON: "a"}).Key(&hook.Hook{Body: []byte(body)}, 8<<20))
}

func TestAFaultIsOneLineWhateverItsKeyHolds(t *testing.T) {
	require.Equal(t, `"sinks.0.headers.a\nb" must be absent`, source.Fault{Key: "sinks.0.headers.a\nb", Problem: "must be absent"}.String())
	require.Equal(t, "sinks.0.url must be absent", source.Fault{Key: "sinks.0.url", Problem: "must be absent"}.String())
}

func TestAKeyHasOneFaultHoweverOftenItIsJudged(t *testing.T) {
	_, err := source.DecodeAll("sources", tree(t, "a: {verify: {type: none}, sinks: [{type: log}], retry: {base_ms: -1}}"), source.Rules{})
	require.EqualError(t, err, "sources.a.retry.base_ms must be a whole number from 0 to 1099511627776, got -1")
}
