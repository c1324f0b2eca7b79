package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"ankusa.dev/services/internal/source"
)

// api is the part of the REST API that keeps sources.
type api struct {
	base   *url.URL
	client *http.Client
}

var errServer = errors.New("--server must be an absolute http or https URL")

func newAPI(server string, client *http.Client) (*api, error) {
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errServer
	}
	return &api{base: base, client: client}, nil
}

// statusError is an answer that refuses.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// get returns a source as the server shows it, with its secrets redacted, or nil where there is none.
func (a *api) get(ctx context.Context, tenant, name string) (*source.Source, error) {
	var shown json.RawMessage
	err := a.call(ctx, http.MethodGet, a.sources(tenant, name), nil, &shown)
	var refused *statusError
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	tree, err := source.ParseJSON(shown)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if fields, ok := tree.(map[string]any); ok {
		delete(fields, "source_id") // what a server adds
		delete(fields, "revision")
	}
	s, err := source.Decode("", tree)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return s, nil
}

func (a *api) list(ctx context.Context, tenant string) ([]string, error) {
	var shown struct {
		Entries []struct {
			Name string `json:"name"`
		} `json:"entries"`
	}
	if err := a.call(ctx, http.MethodGet, a.sources(tenant), nil, &shown); err != nil {
		return nil, err
	}
	names := make([]string, len(shown.Entries))
	for i, e := range shown.Entries {
		names[i] = e.Name
	}
	return names, nil
}

func (a *api) create(ctx context.Context, s *source.Source) error {
	body := s.Revealed()
	body["name"] = s.Name
	return a.call(ctx, http.MethodPost, a.sources(s.Tenant), body, nil)
}

func (a *api) update(ctx context.Context, s *source.Source) error {
	return a.call(ctx, http.MethodPut, a.sources(s.Tenant, s.Name), s.Revealed(), nil)
}

func (a *api) remove(ctx context.Context, tenant, name string) error {
	return a.call(ctx, http.MethodDelete, a.sources(tenant, name), nil, nil)
}

func (a *api) sources(tenant string, name ...string) string {
	return a.base.JoinPath(append([]string{"v1", "tenants", tenant, "sources"}, name...)...).String()
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

func (a *api) call(ctx context.Context, method, url string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case response.StatusCode/100 != 2:
		return &statusError{response.StatusCode, string(bytes.TrimSpace(text))}
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}
