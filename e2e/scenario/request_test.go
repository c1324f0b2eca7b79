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
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	require.NoError(w.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, string(answer)
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
