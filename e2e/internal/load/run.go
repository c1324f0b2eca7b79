package load

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"ankusa.dev/e2e/internal/history"
)

// Config of a run.
type Config struct {
	// Targets are the base URLs of the ingests, used in turn.
	Targets []string
	// Makers are used in turn.
	Makers []Maker
	// Workers is the number of requests in flight at most.
	Workers int
	// Rate is the offered load in events per second; 0 sends as fast as the answers come.
	Rate float64
	// Count ends the run after so many events; 0 leaves the end to the caller.
	Count int
	// Resend makes the provider try an event again, a while later, until it is acknowledged or refused.
	Resend bool
	// Dir is where the log goes.
	Dir string
}

// requestTimeout is a patient provider's.
const requestTimeout = 15 * time.Second

// resendPause spaces the tries of one event.
const resendPause = 100 * time.Millisecond

// Run is a load at work.
type Run struct {
	cfg     Config
	client  *http.Client
	log     *history.Log[history.Request]
	logPath string
	cancel  context.CancelFunc
	next    atomic.Int64
	begun   time.Time

	mu      sync.Mutex
	acked   []string
	failed  error
	changed chan struct{} // closed and replaced at every acknowledgement
	ended   chan struct{}
}

// Start begins to send. The caller must Stop it.
func Start(ctx context.Context, cfg Config) (*Run, error) {
	path := filepath.Join(cfg.Dir, "requests.jsonl")
	log, err := history.Create[history.Request](path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{
		cfg: cfg, log: log, logPath: path, cancel: cancel, begun: time.Now(),
		changed: make(chan struct{}), ended: make(chan struct{}),
		client: &http.Client{
			Timeout:   requestTimeout,
			Transport: &http.Transport{MaxIdleConnsPerHost: cfg.Workers, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
		},
	}
	go r.work(ctx)
	return r, nil
}

// LogPath is the file that the answers are in.
func (r *Run) LogPath() string { return r.logPath }

// Acked returns the ids of the hooks that were acknowledged so far.
func (r *Run) Acked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.acked...)
}

// WaitAcked returns when n more hooks were acknowledged, or with the context's error, or early where the run ended.
func (r *Run) WaitAcked(ctx context.Context, n int) error {
	target := -1
	for {
		r.mu.Lock()
		have, changed := len(r.acked), r.changed
		r.mu.Unlock()
		if target < 0 {
			target = have + n
		}
		if have >= target {
			return nil
		}
		select {
		case <-changed:
		case <-r.ended:
			return fmt.Errorf("load: ended with %d of %d acknowledgements", have, target)
		case <-ctx.Done():
			return fmt.Errorf("load: %d of %d acknowledgements: %w", have, target, ctx.Err())
		}
	}
}

// Wait returns when a run with a Count has sent all its events.
func (r *Run) Wait(ctx context.Context) error {
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop lets the requests that are on their way be answered, ends the run, and reports what kept it from its work.
func (r *Run) Stop() error {
	r.cancel()
	<-r.ended
	r.client.CloseIdleConnections()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.failed, r.log.Close())
}

func (r *Run) work(ctx context.Context) {
	var workers sync.WaitGroup
	for range r.cfg.Workers {
		workers.Go(func() {
			for {
				seq, ok := r.turn(ctx)
				if !ok {
					return
				}
				if err := r.event(ctx, seq); err != nil {
					r.fail(err)
					return
				}
			}
		})
	}
	workers.Wait()
	close(r.ended)
}

func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
	r.cancel()
}

// turn waits for the time of the next event.
func (r *Run) turn(ctx context.Context) (int, bool) {
	seq := int(r.next.Add(1))
	if r.cfg.Count > 0 && seq > r.cfg.Count {
		return 0, false
	}
	if r.cfg.Rate > 0 {
		due := r.begun.Add(time.Duration(float64(seq) / r.cfg.Rate * float64(time.Second)))
		return seq, pause(ctx, time.Until(due))
	}
	return seq, ctx.Err() == nil
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// event sends one event until the provider is content, or once.
func (r *Run) event(ctx context.Context, seq int) error {
	e, err := r.cfg.Makers[seq%len(r.cfg.Makers)](seq)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		answer := r.send(seq, e, r.cfg.Targets[(seq+try)%len(r.cfg.Targets)])
		r.log.Append(answer)
		if answer.Acked() {
			r.acknowledged(answer.ID)
		}
		settled := answer.Acked() || answer.Refused()
		if !settled && !pause(ctx, resendPause) || settled || !r.cfg.Resend {
			return nil
		}
	}
}

func (r *Run) acknowledged(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, id)
	close(r.changed)
	r.changed = make(chan struct{})
}

// send is not ended by the run's end: an answer that is on its way counts.
func (r *Run) send(seq int, e Event, target string) history.Request {
	sum := sha256.Sum256(e.Body)
	h := history.Request{
		Seq: seq, Source: e.Source, Key: e.Key, Ordered: e.Ordered, Lane: e.Lane,
		BodySHA256: hex.EncodeToString(sum[:]), Sent: time.Now(),
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, target+"/webhooks/"+e.Path, bytes.NewReader(e.Body))
	if err != nil {
		h.Error = err.Error()
		return h
	}
	req.GetBody = nil // a provider does not resend behind its own back
	for name, values := range e.Header {
		req.Header[name] = values
	}
	if err := r.do(req, &h); err != nil {
		h.Error = err.Error()
	}
	h.Answered = time.Now()
	return h
}

// do takes an answer for one only when all of it came.
func (r *Run) do(req *http.Request, h *history.Request) error {
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	h.Status = resp.StatusCode
	var answer struct {
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate"`
		Error     string `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("answer %d is no JSON: %w", resp.StatusCode, err)
	}
	h.ID, h.Duplicate, h.Error = answer.ID, answer.Duplicate, answer.Error
	return nil
}
