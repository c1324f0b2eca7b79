package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ankusa.dev/services/internal/config"
	"ankusa.dev/services/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ankusa.yml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

type closing struct {
	name string
	out  *[]string
}

func (c closing) Close() error {
	*c.out = append(*c.out, c.name)
	return nil
}

var errBuild = errors.New("build failed")

func TestWhatWasOpenedIsClosedWhenTheBuildFails(t *testing.T) {
	var closed []string
	var log bytes.Buffer
	code := Run(t.Context(), config.RoleAll, file(t, ""), func(_ context.Context, p *Process) error {
		p.Owns("a", closing{"a", &closed})
		l, err := p.Listen("things", "127.0.0.1:0")
		require.NoError(t, err)
		p.Owns("b", closing{"b", &closed})
		t.Cleanup(func() { require.Error(t, l.Close(), "the listener is closed already") })
		return errBuild
	}, &log)
	require.Equal(t, exitFailed, code)
	require.Equal(t, []string{"b", "a"}, closed)
	require.Contains(t, log.String(), "build failed")
}

func TestAStopWhileTheProcessStartsIsNoFailure(t *testing.T) {
	var closed []string
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	code := Run(ctx, config.RoleAll, file(t, ""), func(ctx context.Context, p *Process) error {
		p.Owns("store", closing{"store", &closed})
		stop()
		<-ctx.Done()
		return fmt.Errorf("wait for the store: %w", ctx.Err())
	}, &log)
	require.Zero(t, code)
	require.Equal(t, []string{"store"}, closed)
	require.Contains(t, log.String(), "stopped while starting")
	require.NotContains(t, log.String(), `"error","time"`)
}

func TestAPartThatFailsEndsTheProcess(t *testing.T) {
	var log bytes.Buffer
	var closed []string
	code := Run(t.Context(), config.RoleAll, file(t, ""), func(_ context.Context, p *Process) error {
		p.Owns("store", closing{"store", &closed})
		p.Add(run.Part{Name: "role", Run: func(context.Context) error { return errBuild }})
		return p.ServeHTTP("health", "127.0.0.1:0", http.NotFoundHandler())
	}, &log)
	require.Equal(t, exitFailed, code)
	require.Equal(t, []string{"store"}, closed)
	require.Contains(t, log.String(), "role: build failed")
}

func TestABadConfigurationBuildsNothing(t *testing.T) {
	var log bytes.Buffer
	code := Run(t.Context(), config.RoleIngest, file(t, "store: {type: local}\n"), func(context.Context, *Process) error {
		t.Error("the build was called")
		return nil
	}, &log)
	require.Equal(t, config.ExitCode, code)
	require.Contains(t, log.String(), "store.type must be tikv for the ingest process")
}

func TestCertificatesThatCannotBeReadEndTheProcess(t *testing.T) {
	var log bytes.Buffer
	text := fmt.Sprintf("rpc: {tls: {cert: %[1]s/c, key: %[1]s/k, ca: %[1]s/a}}\n", t.TempDir())
	code := Run(t.Context(), config.RoleAll, file(t, text), func(context.Context, *Process) error { return nil }, &log)
	require.Equal(t, exitFailed, code)
	require.Contains(t, log.String(), "load certificate")
}

func TestFlagsOfAProcess(t *testing.T) {
	require.Zero(t, Main(config.RoleIngest, []string{"--version"}, nil))
	require.Zero(t, Main(config.RoleIngest, []string{"--help"}, nil))
	require.Equal(t, exitUsage, Main(config.RoleIngest, []string{"--colour"}, nil))
	require.Equal(t, exitUsage, Main(config.RoleIngest, []string{"now"}, nil))
	require.Equal(t, config.ExitCode, Main(config.RoleIngest, []string{"--config", "/nothing"}, nil))
}

func TestL48_WhatLibrariesWriteToTheStandardLogIsWithheld(t *testing.T) {
	var out bytes.Buffer
	Run(t.Context(), config.RoleAll, file(t, "log: {level: debug}\n"), func(context.Context, *Process) error {
		stdlog.Printf("Unsolicited response starting with %q", "the body of a hook")
		return errBuild
	}, &out)
	require.NotContains(t, out.String(), "body of a hook")
	require.Contains(t, out.String(), "its words are withheld")
}
