package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func apply(t *testing.T, s *served, text string, flags ...string) (int, string) {
	t.Helper()
	return command(t.Context(), io.Discard, append([]string{"apply", "-f", write(t, text), "--server", s.admin}, flags...)...)
}

const (
	twoSources = `
sources:
  open: {verify: {type: none}, sinks: [{type: log}]}
  hub: {tenant: acme, verify: {type: github, secret: s3cret}, sinks: [{type: log}]}
`
	changedSources = `
sources:
  open: {verify: {type: none}, max_headers: 3, retry: {base_ms: 50}, sinks: [{type: log}]}
  hub: {tenant: acme, verify: {type: github, secret: other}, sinks: [{type: log}]}
`
)

func TestApplyBringsTheServerToWhatTheFileSays(t *testing.T) {
	s := serve(t, t.TempDir(), "sources:\n  old: {verify: {type: none}, sinks: [{type: log}]}\n")

	code, out := apply(t, s, twoSources, "--dry-run")
	require.Equal(t, exitDiffers, code)
	require.Equal(t, "+ acme.hub: create\n+ open: create\n", out)
	_, shown := request(t, http.MethodGet, s.admin+"/v1/tenants/acme/sources", "")
	require.NotContains(t, shown, `"hub"`)

	code, out = apply(t, s, twoSources)
	require.Zero(t, code)
	require.Equal(t, "+ acme.hub: create\n+ open: create\n", out)
	code, out = apply(t, s, twoSources, "--dry-run")
	require.Zero(t, code, out)
	require.Equal(t, "= acme.hub: unchanged, but for the secrets, which cannot be compared\n= open: unchanged\n", out)

	code, out = apply(t, s, changedSources)
	require.Zero(t, code)
	require.Equal(t, "= acme.hub: rewrite, for its secrets\n~ open: update\n    ~ max_headers: 64 -> 3\n    + retry.base_ms: 50\n", out)
	require.NotContains(t, out, "s3cret")

	_, shown = request(t, http.MethodGet, s.admin+"/v1/tenants/default/sources", "")
	require.Contains(t, shown, `"old"`)
}

func TestApplyDeletesWithPruneAlone(t *testing.T) {
	s := serve(t, t.TempDir(), "sources:\n  old: {verify: {type: none}, sinks: [{type: log}]}\n")
	_, _ = apply(t, s, twoSources)
	code, out := apply(t, s, twoSources, "--prune", "--dry-run")
	require.Equal(t, exitDiffers, code)
	require.Contains(t, out, "- old: delete\n")
	code, out = apply(t, s, twoSources, "--prune")
	require.Zero(t, code, out)
	require.Contains(t, out, "- old: delete\n")
	_, shown := request(t, http.MethodGet, s.admin+"/v1/tenants/default/sources", "")
	require.NotContains(t, shown, `"old"`)
	require.Contains(t, shown, `"open"`)
}

func TestApplyReportsWhatFailedAndGoesOn(t *testing.T) {
	s := serve(t, t.TempDir(), "")
	code, out := apply(t, s, `
sources:
  bad: {verify: {type: none}, sinks: [{type: http, url: "http://10.0.0.1/", allow_unsigned: true}]}
  good: {verify: {type: none}, sinks: [{type: log}]}
`)
	require.Equal(t, exitFailed, code)
	require.True(t, containsAll(out, "! bad: create: status 400", "egress", "+ good: create\n"), out)

	code, out = command(t.Context(), io.Discard, "apply", "-f", write(t, twoSources), "--server", "http://127.0.0.1:1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "! open: ")
}

func TestApplyRefusesABadFileBeforeItAsksTheServer(t *testing.T) {
	for text, want := range map[string]string{
		"sources: {a: {verify: {type: none}, sinks: []}}": "sources.a.sinks must be",
		"http: {port: 1}":         "sources must be given",
		"sauces: {}\nsources: {}": "sauces is not a known key",
		"sources: {a: {verify: {type: github, secret: \"${NO_SUCH_VARIABLE}\"}}}": "that variable is not set",
	} {
		code, out := command(t.Context(), io.Discard, "apply", "-f", write(t, text), "--server", "http://127.0.0.1:1")
		require.Equal(t, 78, code)
		require.Contains(t, out, want)
	}
}
