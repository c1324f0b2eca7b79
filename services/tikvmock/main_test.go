package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunPrintsTheAddressAndEndsWithItsContext(t *testing.T) {
	for _, advertise := range []string{"", "proxy.example:1"} {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, []string{"--advertise", advertise, "--path", t.TempDir()}, in) }()
		line, err := bufio.NewReader(out).ReadBytes('\n')
		require.NoError(t, err)
		var said map[string]string
		require.NoError(t, json.Unmarshal(line, &said))
		require.NotEmpty(t, said["listen"])
		if advertise == "" {
			advertise = said["listen"]
		}
		require.Equal(t, advertise, said["pd"])
		cancel()
		require.NoError(t, <-ended)
	}
}

func TestRunRefusesUnknownFlags(t *testing.T) {
	require.Error(t, run(context.Background(), []string{"--what"}, io.Discard))
}
