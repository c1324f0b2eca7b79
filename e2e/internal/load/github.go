package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// GitHub signs events with npm's @octokit/webhooks-methods, in a Node process of its own. It is safe for concurrent use.
type GitHub struct {
	source string
	mu     sync.Mutex
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
}

// NewGitHub installs the library as the lock file pins it, where it is not there yet, and starts the signing process.
// The caller must Close it.
func NewGitHub(ctx context.Context, source, secret string) (*GitHub, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		return nil, errors.New("github: the signing script cannot be found")
	}
	dir := filepath.Join(filepath.Dir(file), "octokit")
	if err := install(ctx, dir); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, "sign.mjs"), secret)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("github: start the signing process: %w", err)
	}
	return &GitHub{source: source, cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// Make makes an event for a source that deduplicates by x-github-delivery.
func (g *GitHub) Make(seq int) (Event, error) {
	key := fmt.Sprintf("%s-delivery-%d", g.source, seq)
	body, err := document(map[string]any{"action": "opened", "number": seq, "mark": Mark, "text": text(seq)})
	if err != nil {
		return Event{}, err
	}
	signature, err := g.sign(string(body))
	if err != nil {
		return Event{}, err
	}
	return Event{Path: g.source, Source: g.source, Key: key, Body: body, Header: http.Header{
		"Content-Type": {"application/json"}, "X-Github-Event": {"issues"},
		"X-Github-Delivery": {key}, "X-Hub-Signature-256": {signature},
	}}, nil
}

func (g *GitHub) sign(payload string) (string, error) {
	line, err := json.Marshal(payload)
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.in.Write(append(line, '\n')); err != nil {
		return "", fmt.Errorf("github: sign: %w", err)
	}
	signature, err := g.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("github: sign: %w", err)
	}
	return strings.TrimSpace(signature), nil
}

// Close ends the signing process.
func (g *GitHub) Close() error { return errors.Join(g.in.Close(), g.cmd.Wait()) }
