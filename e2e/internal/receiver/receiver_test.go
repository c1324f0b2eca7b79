package receiver_test

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"ankusa.dev/e2e/internal/history"
	"ankusa.dev/e2e/internal/receiver"
)

func start(t *testing.T) *receiver.Receiver {
	t.Helper()
	r, err := receiver.Start("127.0.0.1:0", t.TempDir())
	require.NoError(t, err)
	return r
}

// post delivers as a signing sender would.
func post(t *testing.T, r *receiver.Receiver, path, id string, body []byte, timeout time.Duration) (*http.Response, error) {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(receiver.Secret)
	require.NoError(t, err)
	now := time.Now()
	signature, err := wh.Sign(id, now, body)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL(path), bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("webhook-id", id)
	req.Header.Set("x-ankusa-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	return client.Do(req)
}

func log(t *testing.T, r *receiver.Receiver) []history.Attempt {
	t.Helper()
	require.NoError(t, r.Close())
	attempts, err := history.Read[history.Attempt](r.LogPath())
	require.NoError(t, err)
	return attempts
}

func TestEveryAttemptIsLoggedWithWhatItCarriedAndGot(t *testing.T) {
	r := start(t)
	r.Behave("/flaky", receiver.Script(receiver.RetryAfter(503, 2*time.Second), receiver.Answer(204)))
	for range 2 {
		resp, err := post(t, r, "/flaky", "h1", []byte("body"), time.Minute)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.NoError(t, r.Wait(t.Context(), func() bool { return r.Attempts() == 2 }))
	require.Equal(t, 1, r.Confirmed())
	require.Equal(t, []string{"h2"}, r.Lacks([]string{"h1", "h2"}))

	attempts := log(t, r)
	require.Len(t, attempts, 2)
	require.Equal(t, 503, attempts[0].Status)
	require.Equal(t, 2*time.Second, attempts[0].RetryAfter)
	require.Equal(t, 204, attempts[1].Status)
	require.Equal(t, "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5", attempts[0].BodySHA256)
	require.Empty(t, attempts[0].BadSignature)
}

func TestALaneCanBehaveOnItsOwn(t *testing.T) {
	r := start(t)
	r.Behave("/", receiver.ByLane(map[string]receiver.Behaviour{"a b": receiver.Answer(503)}, receiver.Answer(204)))
	for key, status := range map[string]int{"a b": 503, "b": 204, "": 204} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL("/"), nil)
		require.NoError(t, err)
		req.Header.Set("x-ankusa-ordering-key", key)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, key)
	}
	require.NoError(t, r.Wait(t.Context(), func() bool { return r.Attempts() == 3 }))
	keys := map[string]int{}
	for _, a := range log(t, r) {
		keys[a.OrderingKey] = a.Status
	}
	require.Equal(t, map[string]int{"a b": 503, "b": 204, "": 204}, keys)
}

func TestABadSignatureIsWrittenDown(t *testing.T) {
	r := start(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL("/"), bytes.NewReader([]byte("x")))
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotEmpty(t, log(t, r)[0].BadSignature)
}

func TestMisbehaviourLooksLikeMisbehaviour(t *testing.T) {
	for name, c := range map[string]struct {
		behave receiver.Behaviour
		status int // logged
		fails  bool
	}{
		"slow":     {receiver.After(20*time.Millisecond, receiver.Answer(200)), 200, false},
		"hang":     {receiver.Hang(), 0, true},
		"reset":    {receiver.Reset(), 0, true},
		"redirect": {receiver.Redirect("/ok"), 307, false},
		"endless":  {receiver.Endless(200), 200, false},
		"back":     {receiver.SendBack(), 204, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			r.Behave("/x", c.behave)
			resp, err := post(t, r, "/x", "h1", []byte("body"), time.Second)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, c.fails, err != nil)
			require.NoError(t, r.Wait(t.Context(), func() bool { return r.Attempts() == 1 }))
			require.Equal(t, c.status, log(t, r)[0].Status)
		})
	}
}

func TestADownReceiverComesBackOnItsPort(t *testing.T) {
	r := start(t)
	require.NoError(t, r.Down())
	_, err := post(t, r, "/", "h1", []byte("body"), time.Second)
	require.Error(t, err)
	require.NoError(t, r.Up())
	resp, err := post(t, r, "/", "h1", []byte("body"), time.Second)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, log(t, r), 1)
}
