package scenario_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"
)

// request makes one request of its own and returns the whole answer.
func (w *world) request(ctx context.Context, method, url string, body []byte, header ...string) (int, string) {
	w.t.Helper()
	status, answer, err := w.try(ctx, method, url, body, header...)
	require.NoError(w.t, err)
	return status, answer
}

// try is request for goroutines other than the test's, and where no answer may come.
func (w *world) try(ctx context.Context, method, url string, body []byte, header ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// post sends to a source and returns the status and the decoded answer.
func (w *world) post(path string, body []byte, header ...string) (int, map[string]any) {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	status, text := w.request(ctx, http.MethodPost, w.cluster.Targets[0]+path, body, header...)
	answer := map[string]any{}
	require.NoError(w.t, json.Unmarshal([]byte(text), &answer), text)
	return status, answer
}
