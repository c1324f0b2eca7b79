// Package receiver is the far end of a delivery: an HTTP server that writes down all that it sees and misbehaves on
// demand.
package receiver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"ankusa.dev/e2e/internal/history"
)

// Secret signs the deliveries of every source whose sink points here.
const Secret = "whsec_ZTJlLXJlY2VpdmVyLXNpZ25pbmcta2V5LTAx"

// Receiver records every attempt in an append-only log before it looks at how to answer. It is safe for concurrent use.
type Receiver struct {
	addr     string
	logPath  string
	log      *history.Log[history.Attempt]
	verifier *standardwebhooks.Webhook

	mu        sync.Mutex
	server    *http.Server
	behaviour map[string]Behaviour
	tries     map[string]int // by hook
	confirmed map[string]bool
	attempts  int
	changed   chan struct{} // closed and replaced at every attempt's end
}

// Start listens on addr and logs into a new file in dir. The caller must Close it.
func Start(addr, dir string) (*Receiver, error) {
	wh, err := standardwebhooks.NewWebhook(Secret)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "attempts.jsonl")
	log, err := history.Create[history.Attempt](path)
	if err != nil {
		return nil, err
	}
	r := &Receiver{
		logPath: path, log: log, verifier: wh, addr: addr,
		behaviour: map[string]Behaviour{}, tries: map[string]int{}, confirmed: map[string]bool{},
		changed: make(chan struct{}),
	}
	if err := r.Up(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return r, nil
}

// URL of a path at the receiver.
func (r *Receiver) URL(path string) string { return "http://" + r.addr + path }

// LogPath is the file that the attempts are in.
func (r *Receiver) LogPath() string { return r.logPath }

// Behave makes all further requests of a path be answered so. A path that was never named answers 200.
func (r *Receiver) Behave(path string, b Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behaviour[path] = b
}

// Up listens, again on the same port after a Down.
func (r *Receiver) Up() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", r.addr)
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute}
	r.mu.Lock()
	r.addr, r.server = l.Addr().String(), server
	r.mu.Unlock()
	go func() { _ = server.Serve(l) }()
	return nil
}

// Down closes the listener and every connection, as a host that went away.
func (r *Receiver) Down() error {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	return server.Close()
}

// Close ends the receiver and reports the first entry that could not be logged.
func (r *Receiver) Close() error { return errors.Join(r.Down(), r.log.Close()) }

// Confirmed counts the hooks that were confirmed at least once.
func (r *Receiver) Confirmed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.confirmed)
}

// Attempts counts the attempts that have ended.
func (r *Receiver) Attempts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts
}

// Lacks returns those of the hooks that were never confirmed.
func (r *Receiver) Lacks(hooks []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var missing []string
	for _, id := range hooks {
		if !r.confirmed[id] {
			missing = append(missing, id)
		}
	}
	return missing
}

// Wait returns when done says so, which is asked after every attempt, or with the context's error.
func (r *Receiver) Wait(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	arrived := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // half a request is no attempt
	}
	sum := sha256.Sum256(body)
	a := history.Attempt{
		ID: req.Header.Get("x-ankusa-id"), Source: req.Header.Get("x-ankusa-source"),
		IdempotencyKey: req.Header.Get("x-ankusa-idempotency-key"), OrderingKey: req.Header.Get("x-ankusa-ordering-key"),
		BodySHA256: hex.EncodeToString(sum[:]), ClaimedSHA256: req.Header.Get("x-ankusa-body-sha256"),
		Arrived: arrived, Path: req.URL.Path, BadSignature: r.judge(req, body),
	}
	try, behave := r.next(a.ID, req.URL.Path)
	defer r.ended(&a)
	behave(&Exchange{w: w, req: req, body: body, try: try, attempt: &a})
}

func (r *Receiver) judge(req *http.Request, body []byte) string {
	if id := req.Header.Get("webhook-id"); id != req.Header.Get("x-ankusa-id") {
		return fmt.Sprintf("webhook-id is %q", id)
	}
	if err := r.verifier.Verify(bytes.Clone(body), req.Header); err != nil {
		return err.Error()
	}
	return ""
}

func (r *Receiver) next(id, path string) (int, Behaviour) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[path+id]++
	if b := r.behaviour[path]; b != nil {
		return r.tries[path+id], b
	}
	return r.tries[path+id], Answer(http.StatusOK)
}

// ended runs also when a behaviour panics to break the connection off.
func (r *Receiver) ended(a *history.Attempt) {
	if a.Answered.IsZero() {
		a.Answered = time.Now()
	}
	r.log.Append(*a)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	if a.Confirmed() {
		r.confirmed[a.ID] = true
	}
	close(r.changed)
	r.changed = make(chan struct{})
}
