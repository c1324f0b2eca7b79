package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func allKeys(t *testing.T) []key {
	t.Helper()
	all, err := keys("..")
	require.NoError(t, err)
	require.Greater(t, len(all), 60)
	return all
}

func TestEveryFieldStatesItsDefault(t *testing.T) {
	for _, k := range allKeys(t) {
		require.NotEmpty(t, k.doc, "%s has no comment", k.path)
		if k.group || k.path == "sources" {
			continue
		}
		require.Equal(t, k.standard, statedDefault(k.doc), "%s: the comment states another default than Default()", k.path)
	}
}

func TestThePageIsUpToDate(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/configuration.md")
	require.NoError(t, err)
	require.Equal(t, render(allKeys(t)), string(page), "run go generate ./internal/config in services/")
}

func TestAStatedDefaultIsFoundInItsSentence(t *testing.T) {
	for doc, want := range map[string]string{
		"Port. Default 4000; 0 to 65535.":            "4000",
		`Level. Default "info"; one of many.`:        "info",
		`Directory. Default "", which is none.`:      "",
		"Tenants. Default {}.":                       "{}",
		"Nothing here.":                              "",
		"Most bytes. Default 268435456 (256 MiB); x": "268435456",
	} {
		got := statedDefault(doc)
		if len(got) > 1 && got[0] == '"' {
			got = got[1 : len(got)-1]
		}
		require.Equal(t, want, got)
	}
}
