package httpsink

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ankusa.dev/services/internal/hook"
)

const (
	// answerTime bounds the reading of a response's body. The status has decided by then; what is at stake is the
	// connection's reuse.
	answerTime = time.Second
	// maxPause bounds what a destination can ask for; policy caps it lower.
	maxPause = 366 * 24 * time.Hour
	// earlyBase and earlyMax bound the pause after "425 Too Early" without a Retry-After.
	earlyBase = 500 * time.Millisecond
	earlyMax  = 30 * time.Second
)

// judge turns a status into an outcome. Redirects and everything else that is not named here are transient.
func judge(r *http.Response, attempt uint32, now time.Time) hook.Outcome {
	o := hook.Outcome{Class: hook.Transient, Status: uint16(r.StatusCode)}
	if r.StatusCode/100 == 2 {
		o.Class = hook.Delivered
		return o
	}
	o.Reason = "http: status " + strconv.Itoa(r.StatusCode)
	pause, asked := retryAfter(r.Header.Get("Retry-After"), now)
	switch code := r.StatusCode; {
	case code == 400, code == 401, code == 403, code == 404, code == 410, code == 413, code == 422, code == 451:
		o.Class = hook.Permanent
	case code == http.StatusTooEarly && !asked:
		o.Class, o.RetryAfter = hook.Throttled, earlyPause(attempt)
	case asked && (code == 408 || code == 425 || code == 429 || code/100 == 5):
		o.Class, o.RetryAfter = hook.Throttled, pause
	}
	return o
}

// retryAfter reads seconds or an HTTP date. Zero and a date that has passed ask for no pause; anything else than these
// forms, a negative number included, asks for nothing. A huge number is cut.
func retryAfter(value string, now time.Time) (pause time.Duration, asked bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(maxPause/time.Second) {
			return maxPause, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), maxPause), true
}

// earlyPause is drawn evenly from 1 ms up to a bound that doubles per attempt.
func earlyPause(attempt uint32) time.Duration {
	bound := earlyMax
	if n := max(attempt, 1) - 1; n < 6 {
		bound = min(earlyBase<<n, earlyMax)
	}
	return time.Millisecond + rand.N(bound)
}

const bufferSize = 4096

// readAnswer reads and closes the body and returns its first bytes, none of an encoded one. The connection serves again
// if the body ended within limit bytes and answerTime; else cut closes it. Bodies are never inflated: the request asks
// for no encoding, and the limit counts what an encoded one has on the wire.
func (s *Sink) readAnswer(r *http.Response, limit int, cut func()) (first []byte) {
	switch {
	case r.Body == http.NoBody:
		return nil
	case r.StatusCode == http.StatusSwitchingProtocols: // the body is the connection itself, which cut cannot close
		_ = r.Body.Close() // the outcome is decided
		return nil
	}
	timer := time.AfterFunc(answerTime, cut)
	defer timer.Stop()
	buf, _ := s.buffers.Get().(*[bufferSize]byte)
	if buf == nil {
		buf = new([bufferSize]byte)
	}
	defer s.buffers.Put(buf)
	for total := 0; ; {
		n, err := r.Body.Read(buf[:min(len(buf), limit+1-total)])
		if keep := min(n, hook.MaxResponse-len(first)); keep > 0 {
			first = append(first, buf[:keep]...)
		}
		total += n
		if total > limit || err != nil && err != io.EOF {
			cut()
			break
		}
		if err != nil {
			break
		}
	}
	_ = r.Body.Close() // the outcome is decided
	if r.Header.Get("Content-Encoding") != "" {
		return nil
	}
	return first
}
