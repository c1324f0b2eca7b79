package verify_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82/webhook"

	"ankusa.dev/services/internal/hook"
	"ankusa.dev/services/internal/ingest/verify"
	"ankusa.dev/services/internal/source"
)

func settings(kind string, secrets ...string) source.Verify {
	v := source.Verify{Type: kind}
	v.SetDefaults()
	for _, s := range secrets {
		v.Secrets = append(v.Secrets, source.NewSecret(s))
	}
	return v
}

func request(body string, headers ...string) *hook.Hook {
	h := &hook.Hook{Body: []byte(body)}
	for i := 0; i < len(headers); i += 2 {
		h.Headers = append(h.Headers, hook.Header{Name: headers[i], Value: headers[i+1]})
	}
	return h
}

var noon = time.Unix(1_700_000_000, 0)

func stripeHeader(body []byte, secret string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret, Timestamp: at}).Header
}

// bodies that have broken verifiers: L27, L28 and L29.
func bodies(t testing.TB) map[string][]byte {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(`{"a":1}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return map[string][]byte{
		"empty": {}, "plain": []byte(`{"id":"evt_1"}`), "L27 odd spacing": []byte("{ \"b\" : 1.0 ,\r\n\"a\":1e2 }\n"),
		"L28 astral": []byte(`{"a":"😀𝒳 é"}`), "L28 not UTF-8": {0xff, 0xfe, 0, 0x80}, "L29 gzip": zipped.Bytes(),
	}
}

func TestStripeSignaturesOfTheProvidersOwnLibraryPass(t *testing.T) {
	v := verify.New(settings(source.VerifyStripe, "new", "old"))
	for name, body := range bodies(t) {
		for _, secret := range []string{"new", "old"} {
			h := request(string(body), "Stripe-Signature", stripeHeader(body, secret, noon))
			require.Empty(t, v.Verify(h, noon), name)
			h.Body = append(h.Body, ' ')
			require.Equal(t, verify.NoMatch, v.Verify(h, noon), name)
		}
		require.Equal(t, verify.NoMatch, v.Verify(request(string(body), "Stripe-Signature", stripeHeader(body, "x", noon)), noon))
	}
}

func TestStandardWebhooksSignaturesOfTheReferenceLibraryPass(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signer, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	for _, form := range []string{secret, strings.TrimPrefix(secret, "whsec_")} {
		v := verify.New(settings(source.VerifyStandardWebhooks, form))
		for name, body := range bodies(t) {
			signature, err := signer.Sign("msg_1", noon, body)
			require.NoError(t, err)
			h := request(string(body), "Webhook-Id", "msg_1", "webhook-timestamp", strconv.FormatInt(noon.Unix(), 10),
				"Webhook-Signature", "v1a,asymmetric v1,bm9uZQ== "+signature)
			require.Empty(t, v.Verify(h, noon), name)
			h.Headers[0].Value = "msg_2"
			require.Equal(t, verify.NoMatch, v.Verify(h, noon), name)
		}
	}
}

func TestTheStandardWebhooksReferenceVectorPasses(t *testing.T) {
	v := verify.New(settings(source.VerifyStandardWebhooks, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	h := request(`{"test": 2432232314}`, "webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp", "1614265330",
		"webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	require.Empty(t, v.Verify(h, time.Unix(1614265330, 0)))
}

func TestSlacksDocumentedRequestPassesHereAndInItsLibrary(t *testing.T) {
	const secret = "8f742231b10e8888abcd99yyyzzz85a5"
	const body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&" +
		"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&" +
		"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&" +
		"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	h := request(body, "X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
		"X-Slack-Request-Timestamp", "1531420618")
	v := verify.New(settings(source.VerifySlack, secret))
	require.Empty(t, v.Verify(h, time.Unix(1531420618, 0)))
	require.Equal(t, verify.OutOfTolerance, v.Verify(h, noon))
}

func TestSlackRequestsPassHereAsInTheVendorsLibrary(t *testing.T) {
	now := time.Now()
	v := verify.New(settings(source.VerifySlack, "k"))
	stamp := strconv.FormatInt(now.Unix(), 10)
	for _, signature := range []string{"v0=" + strings.Repeat("ab", 32), "v0=", "v1=aa", "zz"} {
		header := http.Header{"X-Slack-Signature": {signature}, "X-Slack-Request-Timestamp": {stamp}}
		sv, err := slack.NewSecretsVerifier(header, "k")
		passes := err == nil
		if passes {
			_, _ = sv.Write([]byte("b"))
			passes = sv.Ensure() == nil
		}
		ours := v.Verify(request("b", "X-Slack-Signature", signature, "X-Slack-Request-Timestamp", stamp), now) == ""
		require.Equal(t, passes, ours, signature)
	}
}

func TestGitHubsDocumentedVectorPasses(t *testing.T) {
	v := verify.New(settings(source.VerifyGitHub, "It's a Secret to Everybody"))
	require.Empty(t, v.Verify(request("Hello, World!", "X-Hub-Signature-256",
		"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"), noon))
}

// The signatures of the following were made with openssl dgst.

func TestShopifySignaturesPass(t *testing.T) {
	v := verify.New(settings(source.VerifyShopify, "hush"))
	require.Empty(t, v.Verify(request(`{"id":820982911946154508}`, "X-Shopify-Hmac-SHA256",
		"qBvrsZF7RfB1iS6BX6IHqJTp5L911P7intnPeTPsH0I="), noon))
}

func TestDescribedSchemesPass(t *testing.T) {
	v := settings(source.VerifyHMAC, "k1")
	v.Scheme = source.Scheme{
		SignatureHeader: "x-sig", Signed: "{header:x-id}.{ts}.{body}", Parse: source.ParseSpaceVersions, Version: "v2",
		Hash: "sha512", Encoding: source.EncodingBase64, SecretDecode: source.DecodeRaw, TimestampHeader: "x-ts",
	}
	v.SetDefaults()
	require.Empty(t, verify.New(v).Verify(request(`{"a":1}`, "X-Id", "x-1", "X-Ts", "1700000000", "X-Sig",
		"v1,no v2,a9/pNXZHZB9Hs4uh5iovnvY8WrEoPcgNLa3lquzcloMr7y2CjzUsv3Y/1IqmLprA3YaBMGEFQtSQyAAycKbSEQ=="), noon))
	v = settings(source.VerifyHMAC, "k2")
	v.Scheme.SignatureHeader, v.Scheme.Hash, v.Scheme.Prefix = "x-sig", "sha1", "sha1="
	require.Empty(t, verify.New(v).Verify(request("plain body", "X-Sig", "sha1=3d3c2720e605c960a7a39b8fb5dd15668547f86c"), noon))
}

func TestL31_HeaderNamesMatchInAnyCase(t *testing.T) {
	v := verify.New(settings(source.VerifyStripe, "k"))
	for _, name := range []string{"stripe-signature", "STRIPE-SIGNATURE", "Stripe-Signature"} {
		require.Empty(t, v.Verify(request("b", name, stripeHeader([]byte("b"), "k", noon)), noon))
	}
}

func TestL32_TheToleranceIsTwoSidedInclusiveAndSettable(t *testing.T) {
	s := settings(source.VerifyStripe, "k")
	s.Tolerance = 10 * time.Second
	v := verify.New(s)
	h := request("b", "Stripe-Signature", stripeHeader([]byte("b"), "k", noon))
	for offset, want := range map[time.Duration]verify.Reason{
		0: "", 10 * time.Second: "", -10 * time.Second: "", 11 * time.Second: verify.OutOfTolerance, -11 * time.Second: verify.OutOfTolerance,
	} {
		require.Equal(t, want, v.Verify(h, noon.Add(offset)), offset)
	}
}

func TestL33_EverySecretIsTriedAgainstEverySignature(t *testing.T) {
	v := verify.New(settings(source.VerifyStripe, "a", "b", "c"))
	stamp, of := "t=1700000000", func(secret string) string {
		_, signature, _ := strings.Cut(stripeHeader([]byte("x"), secret, noon), ",")
		return signature
	}
	for _, secret := range []string{"a", "b", "c"} {
		header := strings.Join([]string{stamp, "v0=old", of("wrong"), of(secret), of("other")}, ",")
		require.Empty(t, v.Verify(request("x", "Stripe-Signature", header), noon))
	}
	require.Equal(t, verify.NoMatch, v.Verify(request("x", "Stripe-Signature", stamp+","+of("wrong")+","+of("other")), noon))
}

func TestChecksRunInTheirOrder(t *testing.T) {
	stripe := func(header string) *hook.Hook { return request("b", "Stripe-Signature", header) }
	sw := func(headers ...string) *hook.Hook { return request("b", headers...) }
	bad := settings(source.VerifyStandardWebhooks, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!")
	good := settings(source.VerifyStripe, "k")
	for name, c := range map[string]struct {
		settings source.Verify
		hook     *hook.Hook
		want     verify.Reason
	}{
		"no header":              {good, request("b"), verify.MissingSignature},
		"empty header":           {good, stripe(""), verify.MissingSignature},
		"no pairs":               {good, stripe("nonsense"), verify.MalformedSignature},
		"only another scheme":    {good, stripe("t=1700000000,v0=aa"), verify.BadScheme},
		"no time":                {good, stripe("v1=aa"), verify.MalformedSignature},
		"time not digits":        {good, stripe("t=+1700000000,v1=aa"), verify.MalformedSignature},
		"time too long":          {good, stripe("t=1700000000000000,v1=aa"), verify.MalformedSignature},
		"time out of window":     {good, stripe("t=1,v1=aa"), verify.OutOfTolerance},
		"no match":               {good, stripe("t=1700000000,v1=aa"), verify.NoMatch},
		"parse before time":      {good, stripe("t=1,v0=aa"), verify.BadScheme},
		"no time header":         {bad, sw("webhook-signature", "v1,aa"), verify.MissingSignature},
		"time before template":   {bad, sw("webhook-signature", "v1,aa", "webhook-timestamp", "1"), verify.OutOfTolerance},
		"template before keys":   {bad, sw("webhook-signature", "v1,aa", "webhook-timestamp", "1700000000"), verify.MissingSignature},
		"keys before comparison": {bad, sw("webhook-signature", "v1,aa", "webhook-timestamp", "1700000000", "webhook-id", "m"), verify.BadSecret},
		"other version":          {bad, sw("webhook-signature", "v2,aa"), verify.BadScheme},
		"entry without version":  {bad, sw("webhook-signature", "aa"), verify.MalformedSignature},
		"other prefix":           {settings(source.VerifyGitHub, "k"), request("b", "x-hub-signature-256", "sha1=aa"), verify.BadScheme},
		"upper-case hex": {settings(source.VerifyGitHub, "It's a Secret to Everybody"), request("Hello, World!", "x-hub-signature-256",
			"sha256=757107EA0EB2509FC211221CCE984B8A37570B6D7586C22C46F4379C8B043E17"), verify.NoMatch},
	} {
		require.Equal(t, c.want, verify.New(c.settings).Verify(c.hook, noon), name)
	}
}

func TestAnEmptySecretVerifiesNothing(t *testing.T) {
	v := verify.New(settings(source.VerifyStripe, ""))
	require.Equal(t, verify.BadSecret, v.Verify(request("b", "Stripe-Signature", stripeHeader([]byte("b"), "", noon)), noon))
	v = verify.New(settings(source.VerifyStripe))
	require.Equal(t, verify.NoMatch, v.Verify(request("b", "Stripe-Signature", stripeHeader([]byte("b"), "", noon)), noon))
	v = verify.New(settings("unheard_of", "k"))
	require.NotNil(t, v)
	require.NotEmpty(t, v.Verify(request("b"), noon))
	require.Nil(t, verify.New(settings(source.VerifyNone)))
}

func TestAVerifierServesManyAtOnce(t *testing.T) {
	v := verify.New(settings(source.VerifyStripe, "a", "b"))
	t.Run("group", func(t *testing.T) {
		for i := range 8 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for n := range 200 {
					body := fmt.Appendf(nil, "%d-%d", i, n)
					require.Empty(t, v.Verify(request(string(body), "stripe-signature", stripeHeader(body, "b", noon)), noon))
				}
			})
		}
	})
}

func FuzzNoForgedHeaderPasses(f *testing.F) {
	f.Add("t=1700000000,v1=aa", "v1,aa", "1700000000", []byte("b"))
	f.Add(",=,t=,v1=", " , v1, ", "", []byte{})
	kinds := []string{source.VerifyStripe, source.VerifyStandardWebhooks, source.VerifySlack, source.VerifyGitHub, source.VerifyShopify}
	var all []*verify.Verifier
	for _, k := range kinds {
		all = append(all, verify.New(settings(k, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")))
	}
	f.Fuzz(func(t *testing.T, pairs, versions, stamp string, body []byte) {
		h := request(string(body), "stripe-signature", pairs, "webhook-signature", versions, "webhook-id", stamp,
			"webhook-timestamp", stamp, "x-slack-signature", pairs, "x-slack-request-timestamp", stamp,
			"x-hub-signature-256", pairs, "x-shopify-hmac-sha256", versions)
		for i, v := range all {
			require.NotEmpty(t, v.Verify(h, noon), kinds[i])
		}
	})
}
