package tikv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/tikv/client-go/v2/tikvrpc"
	"github.com/tikv/client-go/v2/tikvrpc/interceptor"

	"ankusa.dev/services/internal/kv"
)

func (t *txn) commit(ctx context.Context, o kv.UpdateOptions) (kv.Timestamp, error) {
	w := t.witness(o.Bound)
	bounded := o.Bound > 0
	// Both let the store choose the commit timestamp, which no bound can be held against beforehand.
	t.client.SetEnable1PC(!bounded)
	t.client.SetEnableAsyncCommit(!bounded)
	if bounded {
		t.client.SetCommitTSUpperBoundCheck(w.within)
	}
	t.client.SetRPCInterceptor(w.intercept)
	t.client.SetCommitCallback(w.committed)
	err := t.store.try(ctx, "commit", t.client.Commit)
	if err != nil {
		return 0, w.verdict(err)
	}
	return w.timestamp, nil
}

// witness sees every request of one commit, so that the commit's fate is told from what was sent and answered, and
// not from which of the client's timers ran out first.
//
// It also makes the bound good. A reader who meets a lock of the transaction either finds it expired and rolls the
// transaction back, or has the store refuse every commit at or below the reader's own timestamp. So a commit that
// arrives late, from a process that was stopped, changes no snapshot that somebody has read; and the later timestamp
// that the client would take instead is past the bound, and is not sent.
type witness struct {
	limit    kv.Timestamp // last commit timestamp allowed; zero for none
	deadline time.Time    // about when that comes

	mu         sync.Mutex
	given      bool // the caller has its verdict: nothing more may decide the commit
	late       bool // the commit was refused for its timestamp
	rolledBack bool // others, tired of waiting for a lock, ended the transaction
	tooLarge   bool
	// open are the requests that may have decided the commit, by their first key.
	open map[string]struct{}

	timestamp kv.Timestamp // written before the commit returns
}

func (t *txn) witness(bound time.Duration) *witness {
	w := &witness{open: map[string]struct{}{}}
	if bound > 0 {
		w.limit, w.deadline = t.Timestamp().Add(bound), t.began.Add(bound)
	}
	return w
}

// verdict says what the error of a failed or abandoned commit means, and keeps it true.
func (w *witness) verdict(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.given = true
	switch {
	case errors.Is(err, kv.ErrConflict), errors.Is(err, kv.ErrTooLarge), errors.Is(err, kv.ErrUndetermined):
		return err
	case len(w.open) > 0:
		return fmt.Errorf("%w: %w", kv.ErrUndetermined, err)
	case w.late, w.rolledBack && w.limit != 0 && time.Now().After(w.deadline):
		return fmt.Errorf("commit: %w", kv.ErrBound)
	case w.rolledBack:
		return fmt.Errorf("commit: rolled back by others: %w", kv.ErrConflict)
	case w.tooLarge:
		return fmt.Errorf("commit: %w", kv.ErrTooLarge)
	}
	return err
}

// within is the client's check of the first commit timestamp.
func (w *witness) within(ts uint64) bool {
	if kv.Timestamp(ts) <= w.limit {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = true
	return false
}

func (w *witness) committed(info string, err error) {
	var done struct {
		TS uint64 `json:"commit_ts"`
	}
	if err == nil && json.Unmarshal([]byte(info), &done) == nil {
		w.timestamp = kv.Timestamp(done.TS)
	}
}

func (w *witness) intercept(next interceptor.RPCInterceptorFunc) interceptor.RPCInterceptorFunc {
	return func(target string, req *tikvrpc.Request) (*tikvrpc.Response, error) {
		key, decides := decisive(req)
		if !decides {
			resp, err := next(target, req)
			w.size(resp)
			return resp, err
		}
		doubted, refusal := w.admit(key, req)
		if refusal != nil {
			return refusal, nil
		}
		resp, err := next(target, req)
		w.size(resp)
		w.answered(key, doubted, resp, err)
		return resp, err
	}
}

// decisive tells the requests that can make the commit visible. key names what is asked, over all its repetitions.
func decisive(req *tikvrpc.Request) (key string, ok bool) {
	switch req.Type {
	case tikvrpc.CmdCommit:
		return string(req.Commit().GetKeys()[0]), true
	case tikvrpc.CmdPrewrite:
		p := req.Prewrite()
		return string(p.GetMutations()[0].GetKey()), p.GetTryOnePc() || p.GetUseAsyncCommit()
	}
	return "", false
}

// admit lets a decisive request pass, or answers it in the store's stead so that the client rolls back. The bound is
// checked here once more: pushed by a reader, the client takes a new timestamp and does not ask within again.
func (w *witness) admit(key string, req *tikvrpc.Request) (doubted bool, refusal *tikvrpc.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if req.Type == tikvrpc.CmdCommit && w.limit != 0 && kv.Timestamp(req.Commit().GetCommitVersion()) > w.limit {
		// The push also forbids what was sent with an earlier timestamp, should it still be under way.
		w.late = true
		delete(w.open, key)
		return false, refuse(req)
	}
	if w.given {
		return false, refuse(req)
	}
	_, doubted = w.open[key]
	w.open[key] = struct{}{}
	return doubted, nil
}

func refuse(req *tikvrpc.Request) *tikvrpc.Response {
	fault := &kvrpcpb.KeyError{Abort: "given up by the client"}
	if req.Type == tikvrpc.CmdCommit {
		return &tikvrpc.Response{Resp: &kvrpcpb.CommitResponse{Error: fault}}
	}
	return &tikvrpc.Response{Resp: &kvrpcpb.PrewriteResponse{Errors: []*kvrpcpb.KeyError{fault}}}
}

// answered settles what an answer settles: a refusal does, a success stays open until the client reports the commit,
// and a region's error speaks for this attempt alone.
func (w *witness) answered(key string, doubted bool, resp *tikvrpc.Response, err error) {
	if err != nil {
		return
	}
	regionErr, err := resp.GetRegionError()
	if err != nil || (regionErr != nil && doubted) || (regionErr == nil && !refused(resp)) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, key)
	if c, ok := resp.Resp.(*kvrpcpb.CommitResponse); ok && regionErr == nil {
		w.rolledBack = c.GetError().GetCommitTsExpired() == nil
	}
}

// refused tells the answers after which the request has not decided the commit. A prewrite that names no timestamp
// has become an ordinary first phase.
func refused(resp *tikvrpc.Response) bool {
	switch r := resp.Resp.(type) {
	case *kvrpcpb.CommitResponse:
		return r.GetError() != nil
	case *kvrpcpb.PrewriteResponse:
		return len(r.GetErrors()) > 0 || r.GetOnePcCommitTs() == 0 && r.GetMinCommitTs() == 0
	}
	return false
}

// size notes the one region error that the client reports by its text alone.
func (w *witness) size(resp *tikvrpc.Response) {
	if resp == nil {
		return
	}
	if e, err := resp.GetRegionError(); err == nil && e.GetRaftEntryTooLarge() != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tooLarge = true
	}
}
